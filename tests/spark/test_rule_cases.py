"""Test cases of rules, by the real engine: what a case says is what the rule's tables hold, and nothing else passes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import CLASSES
from typer.testing import CliRunner, Result

from floodmark.cli.app import app
from floodmark.cli.commands.init import init
from floodmark.spark.session import session
from floodmark.testing import cases, check
from floodmark.testing.playing import play

CHECKOUT = Path(__file__).parents[2]
SCHEMA = "schema: {readings: 'at TIMESTAMP, device STRING, value DOUBLE'}\n"
STREAMS = "streams: {readings: {delta: nowhere/readings, event_time: at, lateness: 1 minute}}"
COUNTED = """\
rule: counted
STREAMS
sql: |
  SELECT window.start AS minute, device, count(*) AS n, avg(value) AS mean
  FROM readings GROUP BY window(at, '1 minute'), device
sinks: [{delta: nowhere/out}, {console: true, qos: 1}]
spark: {shuffle_partitions: 2}
close_idle_after: 10 minutes
timezone: Europe/Berlin
"""
COUNTED_CASES = """\
cases:
  - case: a minute is written once, when it is final
    epochs:
      - input:
          readings:
            - {at: "2001-01-01T00:00:10", device: a, value: 1}
            - {at: "2001-01-01T00:00:50", device: a, value: 2}
            - {device: b}
        expect:
          sink: []
          dead: [{_stream: readings, device: b}]
      - input: {readings: [{at: "2001-01-01T00:02:30", device: a}]}
        expect: {sink: [{minute: "2001-01-01T00:00", device: a, n: 2, mean: 1.5}]}
      - input: {readings: [{at: "2001-01-01T00:00:59", device: a}]}
        expect:
          late: [{at: "2000-12-31T23:00:59Z", device: a}]
          sinks: [null, [{n: 2}]]
      - close_until: 2001-01-01T01:00
        expect: {sink: [{n: 1, mean: null}, {n: 2, mean: 1.5}]}
  - case: silence closes it
    epochs:
      - now: 2001-01-01T00:05
        input: {readings: [{at: "2001-01-01T00:00:10", device: a}]}
        expect: {sink: []}
      - now: 2001-01-01T00:14
        expect: {sink: []}
      - now: 2001-01-01T00:15
        expect: {sink: [{device: a, n: 1}]}
"""
NAMED = """\
rule: named
streams: {readings: {delta: nowhere/readings}}
lookups: {rooms: {delta: nowhere/rooms}}
sql: SELECT device, room, CAST(value AS INT) AS value FROM readings JOIN rooms USING (device)
sinks: [{delta: nowhere/named, key: [device]}]
"""
NAMED_CASES = """\
schema: {readings: 'device STRING, value STRING', rooms: 'device STRING, room INT'}
cases:
  - case: the newest value of each device stays
    epochs:
      - lookups: {rooms: [{device: a, room: 1}, {device: b, room: 2}]}
        input: {readings: [{device: a, value: "1"}, {device: c, value: "9"}]}
        expect: {sink: [{device: a, room: 1, value: 1}]}
      - lookups: {rooms: [{device: a, room: 3}]}
        input: {readings: [{device: a, value: "2"}]}
        expect: {sink: [{device: a, room: 3, value: 2}]}
  - case: no number
    epochs: [{lookups: {rooms: [{device: a, room: 1}]}, input: {readings: [{device: a, value: x}]}}]
  - case: another column
    epochs: [{expect: {sink: [{devise: a}]}}]
"""
TOTALS = """\
rule: totals
STREAMS
process: totals:Totals
key: [k]
sinks: [{delta: nowhere/totals}]
"""


@pytest.fixture(scope="module")
def rules(root: Path) -> Path:
    folder = root / "rules"
    (folder / "tests").mkdir(parents=True)
    for name, text in (("counted", COUNTED), ("named", NAMED), ("totals", TOTALS)):
        (folder / f"{name}.yaml").write_text(text.replace("STREAMS", STREAMS))
    (folder / "totals.py").write_text((CLASSES / "totals.py").read_text())
    (folder / "tests" / "counted.yaml").write_text(SCHEMA + COUNTED_CASES)
    (folder / "tests" / "named.yaml").write_text(NAMED_CASES)
    return folder


def test_windows_late_and_dead_rows_and_the_clock_are_as_the_cases_say(spark: SparkSession, rules: Path) -> None:
    for case in cases(rules, ["counted"]):
        check(case, spark, rules.parent / "home")
    left = [path for path in rules.parent.rglob("*") if path.is_file() and rules not in path.parents]
    assert left == [], "nothing is left behind, and nothing was written elsewhere"


def test_what_differs_is_told_row_by_row(spark: SparkSession, rules: Path, tmp_path: Path) -> None:
    text = SCHEMA + COUNTED_CASES.replace("n: 2, mean: 1.5}]}\n      - input", "n: 3, mean: 1.5}]}\n      - input")
    (rules / "tests" / "counted.yaml").write_text(text.replace("dead: [{_stream: readings, device: b}]", "late: []"))
    first, _ = cases(rules, ["counted"])
    with pytest.raises(AssertionError) as caught:
        check(first, spark, rules.parent / "home")
    place, epoch, title, names, row = str(caught.value).splitlines()
    assert place.endswith("tests/counted.yaml:3")
    assert epoch == "epoch 1 of 4, at watermark 2000-12-31T22:59:50Z"
    assert title == "dead: expected 0 rows, found 1 row"
    assert names.split()[:3] == ["at", "device", "value"]
    assert row.split()[:4] == ["unexpected", "null", "b", "null"]
    (rules / "tests" / "counted.yaml").write_text(text)
    [first, _] = cases(rules, ["counted"])
    result = play(spark, first, rules.parent / "by hand")
    assert (result.epoch, [one.table for one in result.differences]) == (2, ["sinks[0]", "sinks[1]"])
    assert result.differences[0].text().splitlines()[1:] == [
        "          minute                     device  n  mean",
        "expected  2001-01-01T00:00:00+01:00  a       3  1.5",
        "  found                                      2",
    ]


@pytest.mark.prove
def test_a_class_keeps_its_state_from_epoch_to_epoch(spark: SparkSession, rules: Path) -> None:
    (rules / "tests" / "totals.yaml").write_text(
        """\
schema: {readings: 'at TIMESTAMP, k STRING, v DOUBLE, n BIGINT'}
cases:
  - case: it counts
    epochs:
      - input: {readings: [{at: "2001-01-01T00:00:00", k: a, n: 1}]}
        expect: {sink: []}
      - input: {readings: [{at: "2001-01-01T00:00:10", k: a, n: 2}, {at: "2001-01-01T00:01:15", k: b}]}
        expect: {sink: [EXPECTED]}
      - close_until: 2001-01-01T00:01
        expect: {sink: [EXPECTED, {k: a, at: "2001-01-01T00:00:50", what: quiet}]}
""".replace(
            "EXPECTED",
            '{k: a, at: "2001-01-01T00:00:00", what: row None}, {at: "2001-01-01T00:00:10", k: a, what: "row [1]"}',
        )
    )
    [case] = cases(rules, ["totals"])
    check(case, spark, rules.parent / "home")


def test_the_cases_of_the_example_and_those_that_init_writes_hold(spark: SparkSession, rules: Path) -> None:
    init(rules.parent / "mine")
    for case in (*cases(CHECKOUT / "rules", ["departure_delays"]), *cases(rules.parent / "mine" / "rules")):
        check(case, spark, rules.parent / "home")


@pytest.mark.prove
def test_the_command_ends_with_1_where_a_case_fails_and_shows_the_table(
    spark: SparkSession, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lookup tables change, and keys are merged. In the session of the other tests, which the command takes for one of
    its own."""
    monkeypatch.setattr(session, "root_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    (rules / "tests" / "bad.yaml").write_text("cases: []\n")

    def called(*words: str) -> Result:
        places = ["--rules", str(rules), "--home", str(rules.parent / "home")]
        return CliRunner().invoke(app, ["test", *words, *places])

    found = called("named", "bad", "--json")
    assert found.exit_code == 1, found.output
    document: dict[str, Any] = json.loads(found.stdout)
    assert [(one["case"], one["passed"]) for one in document["cases"]] == [
        ("the newest value of each device stays", True),
        ("no number", False),
        ("another column", False),
    ]
    fails, wrong = (one["error"] for one in document["cases"][1:])
    assert fails["type"] == "InputFault" and "CAST_INVALID_INPUT" in fails["message"]
    assert wrong["type"] == "RuleInvalid"
    assert re.search(r"named.yaml:14: .*: unknown column 'devise': did you mean 'device'", wrong["message"])
    assert document["errors"][0]["rule"] == "bad"
    assert called("bad").exit_code == 2
    assert "expected test cases in" in called("named", "--case", "no such").stderr
