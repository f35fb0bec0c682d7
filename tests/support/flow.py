"""A rule with its lake and home in one directory, for tests that run the engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from floodmark.core.rules.rule import Rule, load_rule
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader

CLASSES = Path(__file__).parent / "classes"
START = datetime(2001, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.string()), ("v", pa.float64()), ("n", pa.int64())])
TUMBLING = """
SELECT window.start AS start, k, count(*) AS c, sum(v) AS total, max(n) AS top
FROM events GROUP BY window(at, '1 minute'), k
"""
HOPPING = """
SELECT window.start AS start, window.end AS stop, k, count(*) AS c, avg(v) AS mean, max(n) AS top
FROM events GROUP BY window(at, '1 minute', '20 seconds'), k
"""
TWO_WINDOWS = """
SELECT window.start AS start, k, count(*) AS c, sum(v) AS total FROM events GROUP BY window(at, '1 minute'), k
UNION ALL
SELECT window.start, upper(k), count(n), max(v) FROM events
GROUP BY window(at, '90 seconds', '30 seconds'), ROLLUP(upper(k))
"""
SLICED = """
SELECT window.start AS start, k, count(*) AS c, avg(v) AS mean, sum(v) FILTER (WHERE n > 0) AS total, max(n) + 1 AS top
FROM events WHERE n IS NULL OR n <> 2 GROUP BY window(at, '1 minute', '15 seconds', '5 seconds'), k
HAVING count(*) > 1 OR bool_or(v > 0)
"""
SESSIONS = """
SELECT session_window.start AS start, session_window.end AS stop, k, count(*) AS c, sum(v) AS total FROM events
GROUP BY session_window(at, CASE WHEN n < 0 THEN '20 seconds' ELSE '40 seconds' END), k
"""
CTE_SESSIONS = """
WITH a AS (SELECT at AS t, upper(k) AS u, n, v FROM events WHERE n IS NOT NULL)
SELECT session_window.start AS start, u, max(n) AS top, sum(v) AS total FROM a
GROUP BY session_window(t, '20 seconds'), u
"""
OVER = """
SELECT at, k, v, n, count(*) OVER (PARTITION BY k ORDER BY at RANGE BETWEEN INTERVAL '40' SECONDS PRECEDING
       AND CURRENT ROW) AS c,
       max(n) FILTER (WHERE v > 0)
         OVER (ORDER BY at RANGE BETWEEN INTERVAL '60' SECOND PRECEDING AND INTERVAL '1' SECOND FOLLOWING) AS top
FROM events
"""
PLACES = """
SELECT at, k, v, n, lag(n, 2, -1) OVER (PARTITION BY k ORDER BY at, n, v) AS before,
       sum(n) FILTER (WHERE n > 0)
         OVER (PARTITION BY k ORDER BY at, n, v ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS s,
       row_number() OVER (PARTITION BY k, at ORDER BY v, n) AS place,
       n IS DISTINCT FROM lag(n) OVER (ORDER BY at, n, v, k) AS changed
FROM events WHERE n IS NULL OR n <> 1
"""
RUNNING = """
SELECT k, count(*) AS c, sum(v) AS total, avg(n) AS mean, max(at) FILTER (WHERE n > 0) AS last, min(n) + 1 AS low,
       bool_or(v > 0) AS any_positive
FROM (SELECT at, upper(k) AS k, v, n FROM events WHERE n IS NULL OR n <> 5) GROUP BY k
"""
STATELESS = "SELECT at, k, v, n FROM events WHERE n IS NOT NULL"


def event(seconds: float | None, k: str | None = "a", v: float | None = 1.0, n: int | None = 0) -> dict[str, Any]:
    return {"at": None if seconds is None else START + timedelta(seconds=seconds), "k": k, "v": v, "n": n}


@dataclass
class Flow:
    """`name`: the rule; `root`: where lake, home and rules lie."""

    root: Path
    name: str = "counted"
    sql: str = TUMBLING
    settings: dict[str, Any] = field(default_factory=dict)
    stream: dict[str, Any] = field(default_factory=dict)
    sinks: int = 2
    process: str | None = None  # a class of the modules in `classes` beside this file, in place of the SQL

    @property
    def source(self) -> str:
        return str(self.root / "lake" / f"{self.name}_events")

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def place(self) -> Home:
        return Home(self.home, self.name)

    def sink(self, number: int = 0) -> str:
        return str(self.root / "lake" / f"{self.name}_out{number}")

    def text(self) -> dict[str, Any]:
        stream = {"delta": self.source, "event_time": "at", "lateness": "30 seconds", **self.stream}
        return {
            "rule": self.name,
            "streams": {"events": {key: value for key, value in stream.items() if value is not None}},
            **({"process": self.process, "key": ["k"]} if self.process else {"sql": self.sql}),
            "sinks": [{"delta": self.sink(i)} for i in range(self.sinks)],
            "spark": {"shuffle_partitions": 2},
            **self.settings,
        }

    def write_rule(self) -> Path:
        path = self.root / "rules" / f"{self.name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(self.text(), sort_keys=False))
        if self.process and not path.with_name(self.module).exists():
            self.write_class((CLASSES / self.module).read_text())
        return path

    @property
    def module(self) -> str:
        return f"{str(self.process).split(':')[0]}.py"

    def write_class(self, text: str) -> None:
        """The rule's class as of now; one that is there already stays when the rule is written again."""
        path = self.root / "rules" / self.module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def rule(self) -> Rule:
        return load_rule(self.write_rule(), os.environ)

    def arrive(self, events: Iterable[Mapping[str, Any]]) -> None:
        """One commit, one file."""
        Path(self.source).parent.mkdir(parents=True, exist_ok=True)
        write_deltalake(self.source, pa.Table.from_pylist(list(events), schema=SCHEMA), mode="append")

    def ledger(self) -> LedgerReader:
        found = LedgerReader.load(self.place.ledger)
        assert found is not None
        return found

    def counts(self) -> dict[str, int]:
        """Sums over the committed epochs of the current generation."""
        import json

        ledger = self.ledger()
        assert ledger.head is not None
        sums: dict[str, int] = {}
        for row in ledger.rows:
            if row.kind in ("commit", "lost") and row.generation == ledger.head.generation:
                for counts in json.loads(row.body)["counts"].values():
                    for name, value in counts.items():
                        if name != "expected":
                            sums[name] = sums.get(name, 0) + value
        return sums


def rows_of(address: str) -> list[dict[str, Any]]:
    """Every row; by Rust, for pyarrow's data sets leave threads behind that may abort the process as it ends."""
    found = QueryBuilder().register("t", DeltaTable(address)).execute("SELECT * FROM t").read_all()
    return pa.table(found).to_pylist()
