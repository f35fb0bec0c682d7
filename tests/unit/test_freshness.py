"""How fresh a rule is: lag by the event time of the newest row folded, late rows by the newest run."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.byhand import begun, folded
from support.flow import Flow
from test_lives import call, facts

from floodmark.core.lifecycle.freshness import Late, exceeds, fresh, lag_of
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Life
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.errors import RuleInvalid, Stale
from floodmark.ledger.ledger import Ledger
from floodmark.views.status.freshness import fresh_now
from floodmark.views.status.rulestatus import excused

NOW = datetime(2020, 6, 1, 12, tzinfo=UTC)
MINUTE = 60_000_000
US = int(NOW.timestamp()) * 1_000_000


def rule_with(folder: Path, freshness: Any, streams: Any = None, **more: Any) -> Rule:
    stream = {"delta": "/lake/s", "event_time": "at", "lateness": "1 minute"}
    text = {
        "rule": "r",
        "streams": streams or {"s": stream},
        "sql": "SELECT at FROM s",
        "sinks": [{"delta": "/lake/o"}],
    }
    path = folder / "r.yaml"
    path.write_text(yaml.safe_dump({**text, "freshness": freshness, **more}))
    return load_rule(path, {})


def two_streams(folder: Path, **second: Any) -> Rule:
    one = {"event_time": "at", "lateness": "1 minute"}
    streams = {"a": {**one, "delta": "/lake/a"}, "b": {**one, "delta": "/lake/b", **second}}
    sql = "SELECT a.at FROM a JOIN b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL '1' MINUTE"
    return rule_with(folder, {"max_lag": "30 minutes"}, streams, sql=sql)


def head(rule: Rule, kind: str = "timestamp", **changed: Any) -> Head:
    begin = Entry(int((NOW - timedelta(hours=5)).timestamp() * 1000), ())
    columns = {name: [("at", kind)] for name in rule.streams}
    begun_with = Commit(entry=begin.text(), watermark=None, maxima={}, heard={}, rule=rule.to_json(), columns=columns)
    found = Head(1, "", 1, "token", 3, begin, None, dict.fromkeys(rule.streams), rule, begun_with)
    return replace(found, **changed)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ({"max_lag": "30 minutes"}, (30 * MINUTE, None, "warn")),
        ({"max_late": "0.1 %", "on_exceed": "fail"}, (None, 0.1, "fail")),
        ({"max_lag": "1 day", "max_late": "0%"}, (24 * 60 * MINUTE, 0.0, "warn")),
    ],
)
def test_what_may_be_written(tmp_path: Path, written: Any, found: Any) -> None:
    rule = rule_with(tmp_path, written)
    assert rule.freshness is not None
    assert tuple(rule.freshness.model_dump().values()) == found
    assert Rule.from_json(rule.to_json()) == rule


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"on_exceed": "fail"}, "expected `max_lag: DURATION`, `max_late: SHARE %` or both"),
        ({"max_late": 0.1}, "expected a share such as 0.1 % (at most 100 %), found 0.1"),
        ({"max_late": "0.1"}, "expected a share such as 0.1 %"),
        ({"max_late": "101 %"}, "expected a share such as 0.1 %"),
        ({"max_lag": "0 seconds"}, "expected a duration above zero"),
        ({"max_lag": 30}, "expected a duration such as '30 minutes'"),
        ({"max_lag": "1 hour", "on_exceed": "stop"}, "freshness.on_exceed"),
        ({"max_lags": "1 hour"}, "unknown key 'max_lags': did you mean 'max_lag'?"),
    ],
)
def test_what_may_not(tmp_path: Path, written: Any, said: str) -> None:
    with pytest.raises(RuleInvalid) as fault:
        rule_with(tmp_path, written)
    assert said in str(fault.value)
    assert "freshness" in str(fault.value)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"max_lag": "1 hour"}, "freshness.max_lag: expected a stream with `event_time`"),
        ({"max_late": "1 %"}, "freshness.max_late: expected a stream with `lateness`"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, written: Any, said: str) -> None:
    with pytest.raises(RuleInvalid) as fault:
        rule_with(tmp_path, written, {"s": {"delta": "/lake/s"}})
    assert said in str(fault.value)


def test_the_lag_is_that_of_the_stream_that_is_furthest_behind(tmp_path: Path) -> None:
    rule = two_streams(tmp_path)
    found = lag_of(rule, head(rule, maxima={"a": US - 10 * MINUTE, "b": US - 40 * MINUTE}), NOW)
    assert (found.stream, found.us) == ("b", 40 * MINUTE)


def test_a_stream_that_is_silent_by_its_own_words_does_not_count(tmp_path: Path) -> None:
    rule = two_streams(tmp_path, idle_after="10 minutes")
    seen = head(rule, maxima={"a": US - MINUTE, "b": US - 40 * MINUTE}, heard={"b": US - 40 * MINUTE})
    assert lag_of(rule, seen, NOW).stream == "a"
    assert lag_of(rule, replace(seen, heard={"b": US - 9 * MINUTE}), NOW).stream == "b"


def test_a_stream_that_an_edit_has_left_without_lateness_is_not_excused_for_its_silence_before(tmp_path: Path) -> None:
    """The ledger goes on naming it until the rule is reset, for which the next run asks."""
    rule = rule_with(tmp_path, {"max_lag": "30 minutes"}, {"a": {"delta": "/lake/a", "event_time": "at"}},
                     sql="SELECT at FROM a")  # fmt: skip
    seen = head(rule, maxima={"a": US - 40 * MINUTE}, heard={"a": US - 40 * MINUTE, "gone": US - 40 * MINUTE})
    assert (lag_of(rule, seen, NOW).stream, lag_of(rule, seen, NOW).us) == ("a", 40 * MINUTE)
    assert excused(rule, seen) == {}


def test_a_stream_without_a_row_is_as_old_as_the_generation(tmp_path: Path) -> None:
    rule = two_streams(tmp_path)
    found = fresh(rule, head(rule, maxima={"a": US, "b": None}), None, NOW)
    assert found is not None and found.lag is not None and found.lag.us == 300 * MINUTE
    assert (
        "stream b has had no processed row since the generation started, 5 hours ago, more than max_lag" in found.text()
    )


def test_times_without_a_zone_are_those_of_the_rules_zone(tmp_path: Path) -> None:
    rule = rule_with(tmp_path, {"max_lag": "30 minutes"}, timezone="Europe/Berlin")
    berlin = US + 120 * MINUTE  # what a clock in Berlin shows in June
    assert lag_of(rule, head(rule, "timestamp_ntz", maxima={"s": berlin - MINUTE}), NOW).us == MINUTE


def test_a_row_of_the_future_is_no_negative_lag(tmp_path: Path) -> None:
    rule = rule_with(tmp_path, {"max_lag": "30 minutes"})
    assert lag_of(rule, head(rule, maxima={"s": US + MINUTE}), NOW).us == 0


@pytest.mark.parametrize(("late", "of", "more"), [(1, 1000, False), (3, 3000, False), (4, 3999, True), (1, 999, True)])
def test_a_share_is_exceeded_exactly(late: int, of: int, more: bool) -> None:
    assert exceeds(Late(late, of), 0.1) is more


@pytest.mark.parametrize("on_exceed", ["warn", "fail"])
def test_what_is_exceeded_is_said_and_fails_where_it_is_to(tmp_path: Path, on_exceed: str) -> None:
    rule = rule_with(tmp_path, {"max_lag": "30 minutes", "max_late": "0.1 %", "on_exceed": on_exceed})
    found = fresh(rule, head(rule, maxima={"s": US - 45 * MINUTE}), Late(2, 400), NOW)
    assert found is not None
    assert found.exceeded == [
        "the newest processed row of stream s is 45 minutes old, more than max_lag 30 minutes",
        "2 of 400 rows of the newest run were late (0.5 %), more than max_late 0.1 %",
    ]
    if on_exceed == "warn":
        return found.check()
    with pytest.raises(Stale, match="Committed results stay, and the next run continues") as fault:
        found.check()
    assert fault.value.exit_code == 3


def test_a_rule_that_is_fresh_says_so(tmp_path: Path) -> None:
    rule = rule_with(tmp_path, {"max_lag": "30 minutes", "max_late": "1 %", "on_exceed": "fail"})
    found = fresh(rule, head(rule, maxima={"s": US - MINUTE}), Late(0, 400), NOW)
    assert found is not None and not found.exceeded
    assert found.text() == (
        "the newest processed row of stream s is 1 minute old, within max_lag 30 minutes; 0 of 400 rows of the "
        "newest run were late (0 %), within max_late 1 %"
    )


def test_nobody_asks_how_fresh_a_retired_rule_is(tmp_path: Path) -> None:
    rule = rule_with(tmp_path, {"max_lag": "30 minutes"})
    assert fresh(rule, head(rule, retired="then"), None, NOW) is None
    assert fresh(rule, None, None, NOW) is None


# ------------------------------------------------------------------------------------ of a ledger, by the command line


def stale(place: Path, **freshness: Any) -> Flow:
    """A rule of which every third row was late, twenty years ago; nothing new waits."""
    flow = Flow(place.resolve(), settings={"freshness": freshness})
    ledger = begun(flow)
    folded(flow, ledger, 1, US, US)
    return flow


def test_late_rows_are_those_of_the_newest_run_however_many_epochs_it_had(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = stale(place, max_late="1 %")
    monkeypatch.setattr("floodmark.views.status.freshness.ROWS", 1)
    again = Ledger.open(flow.place.ledger, "again")
    for _ in range(3):
        folded(flow, again, 1, US, US)
    Ledger.open(flow.place.ledger, "upkeep").live(Life(what="maintained"))
    found, other = fresh_now(flow.rule(), flow.home, ""), fresh_now(flow.rule(), flow.home, "another")
    assert found is not None and found.late == Late(3, 9)
    assert other is not None and other.late is None


def test_status_tells_it(place: Path) -> None:
    flow = stale(place, max_lag="30 minutes", max_late="50 %")
    said = call(flow, "status")
    assert "  stale       the newest processed row of stream events is " in said
    assert "1 of 3 rows of the newest run were late (33.3 %), within max_late 50 %" in said
    [exceeded] = facts(flow, "status")["rules"]["counted"]["freshness"]["exceeded"]
    assert "more than max_lag 30 minutes" in exceeded


@pytest.mark.parametrize(
    ("on_exceed", "options", "code"), [("warn", (), 0), ("fail", (), 3), ("fail", ("--stale-ok",), 0)]
)
def test_a_run_with_nothing_to_do_tells_it_and_fails_where_it_is_to(
    place: Path, on_exceed: str, options: tuple[str, ...], code: int
) -> None:
    """Nothing new may be the very fault. What was late was the matter of the run that found it."""
    flow = stale(place, max_lag="30 minutes", max_late="1 %", on_exceed=on_exceed)
    said = call(flow, "run", "counted", *options, code=code)
    assert "more than max_lag 30 minutes" in said and "late (" not in said
    assert ("warning: " in said) is (code == 0)
    found = json.loads(call(flow, "run", "counted", *options, "--json", code=code))["rules"]["counted"]
    assert found["result"] == ("failed" if code else "idle")
    assert found["freshness"]["exceeded"]
