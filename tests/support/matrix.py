"""Forms of rules, types, sinks and faults, multiplied: what `validate` takes must run, be killed, go on and be proven.

A case is one of each axis. `drawn` takes some of the product by a seed, so that each two values of two axes meet sooner
than by chance.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.flow import Flow
from support.types import KINDS, Kind

_EVERY = "a.id, a.at, a.p, a.c"
_BOUND = "b.at BETWEEN a.at - INTERVAL '1' SECOND AND a.at + INTERVAL '1' SECOND"


@dataclass(frozen=True)
class Form:
    """`sql`: gives id, at, p and c, the column of the type; {max} stands for an aggregate of it. `needs`: of ROLES."""

    sql: str
    settings: dict[str, Any] = field(default_factory=dict)
    key: tuple[str, ...] = ("id", "at")
    needs: str = ""
    stream: dict[str, Any] = field(default_factory=dict)


def _windowed(call: str) -> str:
    name = call.partition("(")[0]
    return f"SELECT max(id) AS id, {name}.start AS at, p, {{max}} AS c FROM events GROUP BY {call}, p"


_TUMBLING, _HOPPING = "window(at, '2 seconds')", "window(at, '4 seconds', '1 second')"
UNBOUNDED = {"unbounded": True}
FORMS = {
    "stateless": Form("SELECT id, at, p, c FROM events WHERE id % 7 <> 6"),
    "tumbling": Form(_windowed(_TUMBLING)),
    "grouped by it": Form(
        "SELECT max(id) AS id, window.start AS at, max(p) AS p, c FROM events GROUP BY window(at, '2 seconds'), c",
        needs="GROUP BY, join",
    ),
    "hopping": Form(_windowed(_HOPPING), {"windows": "rows"}),
    "slices": Form(_windowed(_HOPPING), {"windows": "slices"}),
    "sessions": Form(_windowed("session_window(at, '500 milliseconds')")),
    "over time": Form(
        "SELECT id, at, p, c, count(c) OVER (ORDER BY at RANGE BETWEEN INTERVAL '2' SECONDS PRECEDING AND CURRENT ROW) "
        "AS n FROM events"
    ),
    "over rows": Form(
        "SELECT id, at, p, lag(c) OVER (PARTITION BY p ORDER BY at, id) AS c FROM events", UNBOUNDED, needs="newest"
    ),
    "join": Form(f"SELECT {_EVERY}, b.c AS d FROM events a LEFT JOIN events b ON a.id = b.id AND {_BOUND}"),
    "joined by it": Form(
        f"SELECT {_EVERY} FROM events a LEFT SEMI JOIN events b ON a.c <=> b.c AND {_BOUND}", needs="GROUP BY, join"
    ),
    "running": Form("SELECT id, max(at) AS at, p, {max} AS c FROM events GROUP BY id, p", UNBOUNDED, ("id", "p")),
    "top": Form(
        "SELECT id, at, p, c FROM (SELECT *, row_number() OVER (PARTITION BY p ORDER BY id DESC) AS place FROM events) "
        "WHERE place <= 1",
        UNBOUNDED,
        ("p",),
        "newest",
    ),
    "counted": Form(
        "SELECT max(id) AS id, count_window.start AS at, p, {max} AS c FROM events GROUP BY p, count_window(3)",
        UNBOUNDED,
        needs="newest",
    ),
    "begun and ended": Form(
        "SELECT max(id) AS id, state_window.start AS at, p, {max} AS c FROM events "
        "GROUP BY p, state_window(id % 3 = 0, id % 3 = 2)",
        UNBOUNDED,
        needs="newest",
    ),
    "distinct": Form(
        "SELECT id, at, p, c FROM events",
        stream={"distinct": {"key": ["id"], "within": "1 minute"}},
        needs="newest",
    ),
    "looked up": Form("SELECT e.id, e.at, e.p, t.c FROM events e LEFT JOIN t ON e.id = t.id", {"lookups": {"t": {}}}),
    "rebuilt": Form(_windowed(_TUMBLING), {"epoch": "none", "rebuild": True}),
    "class": Form("", needs="class: column"),
}
# What a sink says; `key` and `c` stand for the form's key and the column of the type.
SINKS: dict[str, tuple[dict[str, Any], ...]] = {
    "append": ({},),
    "keyed": ({"key": "key"},),
    "newest": ({"key": "key", "newest": "at"},),
    "newest by it": ({"key": "key", "newest": "c"},),
    "partitioned": ({"partition_by": ["p"]},),
    "partitioned by it": ({"partition_by": ["c"]},),
    "keyed and partitioned": ({"key": "key", "partition_by": ["p"]},),
    "some columns": ({"columns": ["id", "at", "c"], "where": "id % 2 = 0"},),
    "several": ({}, {"key": "key"}, {"where": "c IS NOT NULL"}),
    "delete": ({"key": "key", "delete": "id % 5 = 4"},),
    "deletion vectors": ({"key": "key", "properties": {"delta.enableDeletionVectors": True}},),
    "change feed": ({"key": "key", "properties": {"delta.enableChangeDataFeed": True}},),
}
POINTS = (
    "intent.before", "intent.after", "state.before", "state.after", "sink0.before", "sink0.after",
    "late.after", "commit.before", "commit.after",
)  # fmt: skip
_ROLE_OF = {"newest by it": "newest", "partitioned by it": "partition_by"}
_CLASS = """
class Copies:
    output = "id BIGINT, at TIMESTAMP, p BIGINT, c {ddl}"
    state = {{"kept": "kept {ddl}"}}

    def process(self, key, rows, ctx):
        for row in rows:
            kept = ctx.get_state("kept") or {{}}
            yield (row["id"], row["at"], key[0], kept.get("kept"))
            ctx.put_state("kept", (row["c"],))
"""


@dataclass(frozen=True)
class Case:
    form: str
    kind: Kind
    sink: str
    point: str
    qos: int

    def __str__(self) -> str:
        return f"{self.form}, {self.kind.sql}, {self.sink}, {self.point}, qos {self.qos}"

    @property
    def fits(self) -> bool:
        """Whether the documentation's table of types says that the type can be what the form and the sink ask for."""
        needed = {FORMS[self.form].needs, _ROLE_OF.get(self.sink, "")} - {""}
        return all(self.kind.can(role) for role in needed)

    def flow(self, root: Path, ddl: str) -> Flow:
        """The rule; `ddl`: the type's name in Spark."""
        form = FORMS[self.form]
        best = "max(c)" if self.kind.orders else "count(c)"
        stream = {"start": {"version": 0}, "lateness": "1 second", **form.stream}
        flow = Flow(root, "crossed", form.sql.replace("{max}", best), dict(form.settings), stream)
        flow.settings |= {
            "qos": self.qos,
            "sinks": [self._sink(flow, i, said) for i, said in enumerate(SINKS[self.sink])],
        }
        if self.form == "class":
            flow.process = "copies:Copies"
            flow.write_class(_CLASS.format(ddl=ddl))
            flow.settings["key"] = ["p"]
        if "lookups" in flow.settings:
            flow.settings["lookups"] = {"t": {"delta": str(root / "lake" / "t")}}
        return flow

    def _sink(self, flow: Flow, number: int, said: dict[str, Any]) -> dict[str, Any]:
        key = {"key": list(FORMS[self.form].key)} if "key" in said else {}
        return {"delta": flow.sink(number), **said, **key}


def drawn(seed: str, number: int) -> list[Case]:
    """So many cases of the product, each the one among a few that brings most pairs which have not met yet."""
    draw, met, found = random.Random(seed), set[tuple[int, Any, int, Any]](), list[Case]()
    while len(found) < number:
        best = max((_one(draw) for _ in range(50)), key=lambda case: len(_pairs(case) - met))
        met |= _pairs(best)
        found.append(best)
    return found


def _one(draw: random.Random) -> Case:
    axes = (list(FORMS), KINDS, list(SINKS), POINTS, (2, 2, 1))
    while True:
        case = Case(*(draw.choice(axis) for axis in axes))
        if case.fits:
            return case


def _pairs(case: Case) -> set[tuple[int, Any, int, Any]]:
    values = (case.form, case.kind.sql, case.sink, case.point, case.qos)
    return {(i, values[i], j, values[j]) for i, j in itertools.combinations(range(len(values)), 2)}
