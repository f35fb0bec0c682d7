"""What a dry run with --cascade says of a chain of rules, and what the backfill and the runs after it really do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.corrected import CORRECT
from support.flow import START, Flow, event, rows_of
from support.running import backfill, crash, rehearse_backfill, run

from floodmark.cli.shared.rehearsals import Facts, Forecast, lines
from floodmark.spark.rule.run import RuleRun

A = """
SELECT window.start AS start, window.end AS at, k, count(*) AS n, sum(v) AS v FROM events
GROUP BY window(at, '1 minute'), k
"""
B = """
SELECT window.start AS start, window.end AS at, k, sum(n) AS n, sum(v) AS v FROM events
GROUP BY window(at, '2 minutes'), k
"""
C = "SELECT k, count(*) AS windows, sum(n) AS n, max(v) AS v FROM events GROUP BY k"
ROWS = [event(second, "abc"[second % 3], float(second % 7), second % 11) for second in range(0, 900, 8)]
Change = Callable[[SparkSession, Flow], None]
MINUTE = 60_000_000


def chain(place: Path) -> list[Flow]:
    """The first writes windows by key, the second larger ones, the third totals by key."""
    first = Flow(place, "first", A, stream=CORRECT, sinks=1)
    first.settings["sinks"] = [{"delta": first.sink(), "key": ["start", "k"]}]
    second = Flow(place, "second", B, stream={**CORRECT, "delta": first.sink()}, sinks=1)
    third = Flow(place, "third", C, stream={**CORRECT, "delta": second.sink(), "lateness": None}, sinks=1)
    third.settings |= {"unbounded": True, "sinks": [{"delta": third.sink(), "key": ["k"]}]}
    return [first, second, third]


def _backfill(spark: SparkSession, flow: Flow) -> None:
    low = _micros(2)
    backfill(spark, flow, low, low + MINUTE)


def _run(spark: SparkSession, flow: Flow) -> None:
    run(spark, flow)


def _micros(minute: int) -> int:
    return round(START.timestamp()) * 1_000_000 + minute * MINUTE


def _late(spark: SparkSession, flow: Flow) -> None:
    """From the backfill on it counts."""
    flow.arrive([event(130, "a", 100.0), event(150, "d", 1.0)])
    run(spark, flow)


def _delete(spark: SparkSession, flow: Flow) -> None:
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE k = 'b' AND n < 3")


def _edit(spark: SparkSession, flow: Flow) -> None:
    """From the backfill on these rows do not count."""
    flow.stream = {**flow.stream, "expect": {"not_three": {"check": "n <> 3", "on_fail": "drop"}}}


@pytest.mark.parametrize(
    ("prepare", "really"),
    [
        pytest.param(_edit, _backfill, id="backfill"),
        pytest.param(_late, _backfill, id="backfill of a late row", marks=pytest.mark.prove),
        pytest.param(_delete, _run, id="correct", marks=pytest.mark.prove),
    ],
)
def test_the_chain_really_recomputes_what_was_forecast(
    spark: SparkSession, place: Path, prepare: Change, really: Change
) -> None:
    flows = chain(place)
    flows[0].arrive(ROWS)
    for flow in flows:
        run(spark, flow)
    prepare(spark, flows[0])
    found = _forecast(spark, flows[0])
    assert [(one["order"], one["rule"], one["does"], one["because"]) for one in found] == [
        (1, "second", "correct", None),
        (2, "third", "correct", None),
    ]
    before = [_rows(flow) for flow in flows]
    really(spark, flows[0])
    run(spark, flows[1])
    assert crash(spark, flows[2], "backfill.state.after"), "it is finished for the same keys"
    run(spark, flows[2])
    after = [_rows(flow) for flow in flows]
    assert after[0] != before[0]
    for number, one in enumerate(found, 1):
        real = _correction(flows[number], attempts=2 if flows[number] is flows[-1] else 1)
        _compare(one, real, flows[number], before[number], after[number])
    assert _sums(flows[1], ("start", "k")) == _windows(flows[0], flows[1])
    assert _sums(flows[2], ("k",)) == _totals(flows[1])


def _sums(flow: Flow, key: tuple[str, ...]) -> dict[tuple[Any, ...], tuple[int, float]]:
    rows = rows_of(flow.sink())
    found = {tuple(row[name] for name in key): (row["n"], row["v"]) for row in rows}
    assert len(found) == len(rows) > 0
    return found


def _windows(read: Flow, by: Flow) -> dict[tuple[Any, ...], tuple[int, float]]:
    """What plain Python gives of the windows of two minutes that are final."""
    watermark = by.ledger().head.watermark  # type: ignore[union-attr]
    assert watermark is not None
    found: dict[tuple[Any, ...], tuple[int, float]] = {}
    for row in rows_of(read.sink()):
        start = START + (row["at"] - START) // timedelta(minutes=2) * timedelta(minutes=2)
        if (start + timedelta(minutes=2)).timestamp() * 1_000_000 <= watermark:
            n, v = found.get((start, row["k"]), (0, 0.0))
            found[start, row["k"]] = n + row["n"], v + row["v"]
    return found


def _totals(read: Flow) -> dict[tuple[Any, ...], tuple[int, float]]:
    found: dict[tuple[Any, ...], tuple[int, float]] = {}
    for row in rows_of(read.sink()):
        n, v = found.get((row["k"],), (0, row["v"]))
        found[row["k"],] = n + row["n"], max(v, row["v"])
    return found


def _forecast(spark: SparkSession, flow: Flow) -> list[Facts]:
    forecast = Forecast.of(flow.rule(), flow.root / "rules", flow.home)
    if not _is_rewritten(spark, flow):
        low = _micros(2)
        return forecast.facts(spark, rehearse_backfill(spark, flow, low, low + MINUTE))
    seen = RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).rehearse_correction()
    assert seen is not None
    return forecast.facts(spark, seen)


def _is_rewritten(spark: SparkSession, flow: Flow) -> bool:
    newest = spark.sql(f"DESCRIBE HISTORY delta.`{flow.source}` LIMIT 1").collect()[0]
    return bool(newest["operation"] == "DELETE")


def _rows(flow: Flow) -> Counter[str]:
    return Counter(json.dumps({name: _shown(value) for name, value in row.items()}) for row in rows_of(flow.sink()))


def _shown(value: Any) -> Any:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if isinstance(value, datetime) else value


def _correction(flow: Flow, attempts: int) -> dict[str, Any]:
    """The newest row of the one correction in the ledger, as JSON."""
    bodies = [json.loads(row.body) for row in flow.ledger().rows if row.kind == "backfill"]
    assert (len(bodies), flow.ledger().begun.corrections) == (attempts, 1)
    return dict(bodies[-1])


def _compare(one: Facts, real: dict[str, Any], flow: Flow, before: Counter[str], after: Counter[str]) -> None:
    rewritten = real["rewrites"]["events"]
    assert one["rewrites"] == {"events": {side: rewritten[side]["rows"] for side in ("left", "came")}}
    (moves,) = one["sinks"].values()
    lost, gained = before - after, after - before
    assert (moves["loses"], moves["gains"]) == (lost.total(), gained.total())
    assert lost.total() + gained.total() > 0
    assert [json.dumps(row) for row in moves["lost"]] == sorted(lost)[:5]
    assert [json.dumps(row) for row in moves["gained"]] == sorted(gained)[:5]
    keys = max((count for name, count in real.get("keys", {}).items() if name.startswith("sink/")), default=None)
    assert one["keys"] == keys
    if keys is None:
        assert [_parsed(one["from"]), _parsed(one["to"])] == [real["begin"], real["end"]]
        assert [[_parsed(begin), _parsed(end)] for begin, end in one["gaps"]] == real.get("gaps", [])
    else:
        assert (one["from"], real["begin"]) == (None, real["end"])
        changed = {json.loads(row)["k"] for row in [*lost, *gained]}
        assert {key["k"] for key in one["first_keys"][flow.sink()]} == changed
    assert "would be recomputed" in lines(one)[1]


def _parsed(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)
