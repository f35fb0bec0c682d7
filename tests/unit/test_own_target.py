"""A target of one's own: what its class can do by its text, its batches, its position in the home, and the kit."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.inbox import CLASSES, inbox

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.targets.homeposition import HomePosition
from floodmark.connectors.targets.python.portions import bounds_of, no_rows, portion_of
from floodmark.connectors.targets.python.target import target_of
from floodmark.core.protocol.records.rows import Row
from floodmark.core.relay.portions import Replaced, portions
from floodmark.core.relay.positions import Position
from floodmark.core.rules.checks.recomputing import Scope, reasons_by_emptying, scope_of
from floodmark.core.rules.kinds import can_of
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.core.rules.sinks.delivery import delivery
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import columns_of
from floodmark.errors import Fenced, LedgerBroken, Refused, RuleInvalid
from floodmark.testing import check_target

RULE = """\
rule: posted
streams: {events: {delta: /lake/in}}
sql: SELECT k, n FROM events
sinks: [{python: {class: own:Own, connection: shop}}, {delta: /lake/out}]
"""
AGAIN = "class Own:\n    def apply(self, batch, token):\n        pass\n"
ONCE = """\
class Base:
    def position(self):
        return None


class Own(Base):
    def apply(self, batch, token, since, upto):
        pass

    def empty(self, token, since):
        pass
"""
WITH_ROWS = """
    def rows(self):
        with closing(self._opened()) as database:
            found = database.execute("SELECT at, k, v, n FROM rows").fetchall()
        names = ("k", "v", "n")
        return [{"at": datetime.fromisoformat(at), **dict(zip(names, row))} for at, *row in found]
"""
COLUMNS = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"
ROWS = [
    {"at": datetime(2001, 1, 1 + n // 3, tzinfo=UTC), "k": k, "v": 0.5, "n": n}
    for k, n in (("a", 1), (None, 2), ("b", 3))
]


@pytest.fixture
def load(place: Path) -> Callable[[str, str], Rule]:
    def loaded(text: str, code: str) -> Rule:
        (place / "posted.yaml").write_text(text)
        (place / "own.py").write_text(code)
        return load_rule(place / "posted.yaml", {})

    return loaded


def test_a_class_with_position_delivers_once_and_another_at_least_once(load: Callable[[str, str], Rule]) -> None:
    once = load(RULE, ONCE)
    again = load(RULE.replace("shop}", "shop}, qos: 1"), AGAIN)
    assert [delivery(one)[0].delivery for one in (once, again)] == ["exactly once", "at least once"]
    assert [can_of(one.sinks[0]).empties for one in (once, again)] == [True, False]
    assert (once.sinks[0].address, once.sinks[0].label) == ("python://shop/own:Own", "own:Own")
    assert once.hash != load(RULE, ONCE.replace("pass", "return")).hash


WINDOWS = """\
rule: posted
streams: {events: {delta: /lake/in, event_time: at, lateness: 0 seconds, on_rewrite: correct}}
sql: SELECT window.start AS start, k, count(*) AS c FROM events GROUP BY window(at, '1 minute'), k
sinks: [{python: {class: own:Own}}]
"""
REMOVES = ONCE + "\n    def remove_between(self, column, intervals, token, since):\n        pass\n"


def test_what_is_recomputed_follows_from_the_methods_of_the_class(load: Callable[[str, str], Rule]) -> None:
    assert scope_of(load(WINDOWS, REMOVES)) is Scope.INTERVAL
    assert scope_of(load(WINDOWS, ONCE)) is Scope.ALL
    lacks = "of kind python, in which no rows can be replaced: expected a method `empty` in its class"
    for code in (ONCE, REMOVES):
        with pytest.raises(RuleInvalid, match=lacks):
            load(WINDOWS, code.replace("def empty", "def other"))
    only = load(WINDOWS.replace(", on_rewrite: correct", ""), REMOVES.replace("def empty", "def other"))
    assert scope_of(only) is Scope.INTERVAL
    assert [one.split(",")[0] for one in reasons_by_emptying(only)] == ["sink own:Own is of kind python"]
    totals = WINDOWS.replace("window.start AS start, ", "").replace("window(at, '1 minute'), ", "")
    totals = totals.replace("own:Own}", "own:Own}, key: [k]").replace(", lateness: 0 seconds", "")
    for code in (ONCE, ONCE.replace("def empty", "def other")):
        assert scope_of(load(f"{totals}unbounded: true\n", code)) is Scope.KEYS


@pytest.mark.parametrize(
    ("kind", "zone"), [("TIMESTAMP", UTC), ("TIMESTAMP_NTZ", None)],
)  # fmt: skip
def test_intervals_are_values_of_their_column(kind: str, zone: Any) -> None:
    layout = Layout(columns_of(f"k STRING, at {kind}"))
    found = bounds_of(Replaced("at", ((0, 1_000_001), (-(10**18), 10**18))), layout)
    first = (datetime(1970, 1, 1, tzinfo=zone), datetime(1970, 1, 1, 0, 0, 1, 1, zone))
    assert found == [first, (datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone))]


@pytest.mark.parametrize(
    ("old", "new", "code", "problem"),
    [
        (
            "",
            "",
            AGAIN,
            "expected a sink that can do exactly once (qos 2), found python python://shop/own:Own: give",
        ),
        (
            "shop}",
            "shop}, key: [k], newest: n",
            ONCE,
            "newest: expected a kind that compares rows (delta, postgres, iceberg)",
        ),
        ("/lake/out", "/lake/out, on_reset: keep", ONCE, "sinks[1].on_reset: expected a target ("),
        ("shop}", "shop}, on_reset: stay", ONCE, "expected empty (a reset takes the target's rows away) or keep"),
        ("shop}", "shop, schema: k INT}", ONCE, "unknown key 'schema'"),
        ("", "", ONCE.replace(", since, upto", ""), "expected a plain method apply(self, batch, token, since, upto)"),
        ("", "", AGAIN.replace("apply", "send"), "own.py:1: expected a method apply in class Own, found none"),
        ("", "", ONCE.replace("token, since)", "token)"), "expected a plain method empty(self, token, since)"),
        ("own:Own", "other:Own", ONCE, "sinks[0].python.class: expected the module other at"),
    ],
)
def test_what_a_class_cannot_do_is_refused_by_name(
    load: Callable[[str, str], Rule], old: str, new: str, code: str, problem: str
) -> None:
    assert old in RULE
    with pytest.raises(RuleInvalid) as fault:
        load(RULE.replace(old, new) if old else RULE, code)
    assert problem in str(fault.value)


def test_a_batch_has_the_results_and_the_token_of_each_row() -> None:
    layout = Layout(columns_of("k STRING, n INT"), key=("k",))
    parts = [
        pa.record_batch({"k": ["a", None], "n": pa.array([1, 2], pa.int32()), DELETE_COLUMN: [False, True]}),
        pa.record_batch({"k": pa.nulls(1), "n": pa.nulls(1), DELETE_COLUMN: [False]}),
    ]
    found = portion_of(Operation("x/3", Position("x"), False, None, False, 3, lambda: iter(parts)), layout)
    assert found.schema == no_rows(layout).schema
    assert found.to_pylist() == [
        {"k": "a", "n": 1, DELETE_COLUMN: False, "_floodmark_row": "x/3/0"},
        {"k": None, "n": 2, DELETE_COLUMN: True, "_floodmark_row": "x/3/1"},
        {"k": None, "n": None, DELETE_COLUMN: False, "_floodmark_row": "x/3/2"},
    ]


def test_a_class_that_gains_rows_has_them_once_the_rule_has_run(load: Callable[[str, str], Rule]) -> None:
    """The auditor takes its text from the ledger."""
    text = RULE.replace("own:Own, connection: shop}", "own:Own}, qos: 1")
    target = target_of(load(text, AGAIN).sinks[0], None)
    with pytest.raises(Refused, match=r"found none\. Add it, then run the rule"):
        list(target.read_back(Layout(columns_of("k STRING"))))


TELLS = """\
class Own:
    def __init__(self, path):
        self.path = path

    def apply(self, batch, token):
        self._tell("apply", batch["k"].to_pylist(), token)

    def remove_between(self, column, intervals, token):
        self._tell("remove", column, [(str(low), str(high)) for low, high in intervals], token)

    def _tell(self, *said):
        with open(self.path, "a") as file:
            print(*said, file=file)
"""


def test_an_interval_leaves_a_class_before_its_rows_come(load: Callable[[str, str], Rule], place: Path) -> None:
    told, layout = place / "told", Layout(columns_of("k STRING, at TIMESTAMP"))
    said = f"{{class: own:Own, settings: {{path: {told}}}}}, qos: 1"
    [sink, _] = load(RULE.replace("{class: own:Own, connection: shop}", said), TELLS).sinks
    target = target_of(sink, place / "box")
    batch = pa.record_batch({"k": ["a"], "at": pa.array([1_000_000], pa.timestamp("us", "UTC"))})
    position, interval = Position("x", 1, "t", 2, 3, "h"), Replaced("at", ((0, 60_000_000),))
    parts = [
        Operation("x/3", position, False, interval, True, 1, lambda: iter([batch])),
        Operation("x/4", position, False, interval, True, 0, lambda: iter(())),
    ]
    target.apply(parts, layout, target.claim("x", layout), position, lambda: None)
    times = "[('1970-01-01 00:00:00+00:00', '1970-01-01 00:01:00+00:00')]"
    assert told.read_text().splitlines() == [f"remove at {times} x/3", "apply ['a'] x/3", f"remove at {times} x/4"]
    assert target.position() == position


def test_a_position_in_the_home_moves_from_where_it_was_read(tmp_path: Path) -> None:
    kept = HomePosition("python://x", tmp_path / "box")
    first, second = Position("x"), Position("x", 1, "t", 2, 3, "h")
    assert kept.read() is None
    kept.move(None, first)
    kept.move(first, second)
    assert kept.read() == second
    for stale in (None, first):
        with pytest.raises(Fenced, match="found generation 1, epoch 2: another relay has moved it"):
            kept.move(stale, first)
    assert kept.read() == second
    (tmp_path / "box.position").write_text("{}")
    with pytest.raises(LedgerBroken, match="Restore the home"):
        kept.read()


# --- The kit


def class_of(name: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder.mkdir(exist_ok=True)
    module = f"{name.lower()}_{folder.name}".replace("-", "_")
    (folder / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    sys.modules.pop(module, None)
    return getattr(importlib.import_module(module), name)


def test_the_classes_of_the_page_keep_their_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    post, store = (class_of(name, CLASSES[i], tmp_path, monkeypatch) for i, name in enumerate(("Post", "Store")))
    assert all(len(text.splitlines()) <= 45 for text in CLASSES)
    with inbox() as server:
        assert not check_target(post, COLUMNS, ROWS, {"url": server.url, "pause": 0}).once
        assert (len(server.received), len(server.rows)) == (3 * len(ROWS), 0)
    assert check_target(store, COLUMNS, ROWS, {"path": str(tmp_path / "rows.db")}).once


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("if self._at(database) != since:", "if False:", "expected apply() to raise an error, because position()"),
        (
            '            database.execute("INSERT OR REPLACE INTO position VALUES (1, ?)", [upto])\n',
            "",
            "expected position() to be '{",
        ),
        (
            'self._claim(database, since)\n            database.execute("DELETE',
            'database.execute("DELETE',
            "expected empty() to",
        ),
        (
            "def empty(self, token, since)",
            "def empty(self, token)",
            "expected a plain method empty(self, token, since)",
        ),
        (
            "AND {column} < ?",
            "OR {column} < ?",
            "expected the 1 rows without at = 2001-01-01 00:00:00+00:00 to stay, found 0",
        ),
        (
            "self._claim(database, since)\n            for",
            "for",
            "expected remove_between() to raise an error",
        ),
    ],
)
def test_the_kit_finds_a_class_that_breaks_its_promise(
    old: str, new: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CLASSES[1].count(old) == 1
    store = class_of(
        "Store", "from datetime import datetime\n" + CLASSES[1].replace(old, new) + WITH_ROWS, tmp_path, monkeypatch
    )
    with pytest.raises(AssertionError) as fault:
        check_target(store, COLUMNS, ROWS, {"path": str(tmp_path / "rows.db")})
    assert problem in str(fault.value)


KNOWING = """\
import json
from datetime import datetime
from pathlib import Path


class Own:
    def __init__(self, path):
        self.path = Path(path)

    def apply(self, batch, token):
        rows = [json.dumps(row, default=str) for row in batch.to_pylist()]
        self._once(f"apply {token}", lambda found: found + rows)

    def empty(self, token):
        self._once(f"empty {token}", lambda found: [])

    def rows(self):
        rows = [json.loads(row) for row in self._held()["rows"]]
        return [{**{n: row[n] for n in ("k", "v", "n")}, "at": datetime.fromisoformat(row["at"])} for row in rows]

    def _held(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {"known": [], "rows": []}

    def _once(self, call, change):
        held = self._held()
        if call not in held["known"]:
            self.path.write_text(json.dumps({"known": [*held["known"], call], "rows": change(held["rows"])}))
"""


@pytest.mark.parametrize("knows", [True, False])
def test_a_class_that_knows_its_tokens_knows_each_call(
    knows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = 'f"empty {token}"'
    assert KNOWING.count(call) == 1
    own = class_of(
        "Own", KNOWING if knows else KNOWING.replace(call, "len(self._held()['known'])"), tmp_path, monkeypatch
    )
    given = (own, COLUMNS, ROWS, {"path": str(tmp_path / "rows.json")})
    if knows:
        assert check_target(*given).counted == len(ROWS)
        return
    with pytest.raises(AssertionError, match=r"expected the rows to stay after empty\(\) and apply\(\) with tokens"):
        check_target(*given)


HELD = """\
class Own:
    at, held = None, []

    def position(self):
        return Own.at

    def apply(self, batch, token, since, upto):
        if Own.at != since and not LATE:
            raise RuntimeError("another relay has moved the position")
        Own.held = Own.held + (batch.to_pylist() if KEEPS else [])
        if Own.at != since:
            raise RuntimeError("another relay has moved the position")
        Own.at = upto

    def rows(self):
        return [{name: row[name] for name in ("at", "k", "v", "n")} for row in Own.held]
"""


@pytest.mark.parametrize(
    ("late", "keeps", "problem"),
    [
        (False, True, None),
        (True, True, "expected 3 rows after a call with another `since`, which is to have no effect, found 6"),
        (False, False, "expected 3 rows after apply(batch, token, None, upto), found 0"),
    ],
)
def test_a_class_that_doubles_or_loses_rows_is_found(
    late: bool, keeps: bool, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = class_of("Own", HELD.replace("LATE", str(late)).replace("KEEPS", str(keeps)), tmp_path, monkeypatch)
    if problem is None:
        assert check_target(own, COLUMNS, ROWS).counted == 3
        return
    with pytest.raises(AssertionError) as fault:
        check_target(own, COLUMNS, ROWS)
    assert problem in str(fault.value)


def test_with_a_key_a_class_has_one_row_for_each_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HELD.replace("LATE", "False").replace("KEEPS", "True")
    own = class_of("Own", text.replace("in Own.held]", "in {row['k']: row for row in Own.held}.values()]"), tmp_path,
                   monkeypatch)  # fmt: skip
    assert check_target(own, COLUMNS, [*ROWS, ROWS[0]], key=["k"]).counted == 3


# --- Resets


def row(seq: int, epoch: int, on_reset: str, rows: int) -> Row:
    sink = {"address": "python://own:Own", "on_reset": on_reset}
    body = {"tables": {"sink/python://own:Own": {"rows": rows, "commit": seq, "digest": None}}, "table_ids": {}}
    text = json.dumps({**body, "rule": json.dumps({"sinks": [sink]}) if epoch == 0 else None})
    return Row(seq, "commit", 1 + (seq > 2), "t", epoch, 1, "r", "2001-01-01T00:00:00Z", text, "p", "h")


@pytest.mark.parametrize(("on_reset", "seqs"), [("empty", [3, 4]), ("keep", [2, 3, 4])])
def test_a_reset_takes_rows_away_unless_they_are_to_stay(on_reset: str, seqs: list[int]) -> None:
    """Row 2 was not shipped when the generation of row 3 began."""
    rows = [row(1, 1, on_reset, 5), row(2, 2, on_reset, 5), row(3, 0, on_reset, 0), row(4, 1, on_reset, 5)]
    table_ids = {"sink/python://own:Own": "id"}
    rows[2] = replace(rows[2], body=json.dumps({**json.loads(rows[2].body), "table_ids": table_ids}))
    found = portions(rows, "sink/python://own:Own", Position("x", 1, "t", 1, 1, "h"))
    assert [one.position.seq for one in found] == seqs
    assert [one.empties for one in found] == [on_reset == "empty" and seq == 3 for seq in seqs]
