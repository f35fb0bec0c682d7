"""Settings of a whole installation, by environment variables: which rules have them, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.flow import SESSIONS, STATELESS, Flow

from floodmark.core.health.settings import settings
from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.rules.installation import VARIABLES
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.core.text.durations import DAY, HOUR
from floodmark.errors import RuleChanged, RuleInvalid
from floodmark.views.ruleplan import plan_of
from floodmark.views.rules.origins import Origins


def rule(place: Path, env: Mapping[str, str], sql: str | None = None, **written: Any) -> Rule:
    flow = Flow(place, settings=written, **({"sql": sql} if sql else {}))
    return load_rule(flow.write_rule(), env)


def test_every_setting_can_be_the_installations(place: Path) -> None:
    given = {
        "FLOODMARK_EPOCH_MAX_FILES": "7", "FLOODMARK_EPOCH_MAX_BYTES": "8", "FLOODMARK_EPOCH_MAX_SECONDS": "300",
        "FLOODMARK_MAX_ROWS_PER_WINDOW": "9", "FLOODMARK_CLEANUP_EVERY": "2 hours", "FLOODMARK_CLEANUP_KEEP": "1 day",
        "FLOODMARK_CLEANUP_KEEP_LOG": "2 days",
    }  # fmt: skip
    found = rule(place, given)
    assert (found.epoch.max_files, found.epoch.max_bytes, found.epoch.max_seconds) == (7, 8, 300)
    assert found.max_rows_per_window == 9
    assert (found.cleanup.every_us, found.cleanup.keep_us, found.cleanup.keep_log_us) == (2 * HOUR, DAY, 2 * DAY)
    assert rule(place, {"FLOODMARK_REBUILD": "true"}).rebuild
    assert {*given, "FLOODMARK_REBUILD"} == set(VARIABLES)
    assert rule(place, {}).hash == found.hash, "the text of the rule is the same"


def test_what_a_rule_says_itself_goes_before(place: Path) -> None:
    env = {"FLOODMARK_EPOCH_MAX_SECONDS": "300", "FLOODMARK_EPOCH_MAX_FILES": "1", "FLOODMARK_REBUILD": "1"}
    found = rule(place, env, epoch={"max_files": 5})
    assert (found.epoch.max_files, found.epoch.max_seconds, found.rebuild) == (5, 300, False)
    assert rule(place, env, epoch="none", rebuild=True).epoch.max_seconds is None
    assert not rule(place, env, rebuild=False).rebuild
    assert rule(place, {"FLOODMARK_REBUILD": "0"}).rebuild is False


@pytest.mark.parametrize("said", ["no", "off", "n", "f", "False", " 0 "])
def test_a_word_for_no_rebuilds_no_rule(place: Path, said: str) -> None:
    found = rule(place, {"FLOODMARK_REBUILD": said})
    assert (found.rebuild, found.epoch.max_seconds) == (False, None)


@pytest.mark.parametrize("said", ["yes", "on", "True", " 1 "])
def test_a_word_for_yes_rebuilds_every_rule(place: Path, said: str) -> None:
    assert rule(place, {"FLOODMARK_REBUILD": said}).rebuild


def test_a_limit_of_windows_is_none_of_rules_that_have_none(place: Path) -> None:
    env = {"FLOODMARK_MAX_ROWS_PER_WINDOW": "9"}
    assert rule(place, env, STATELESS).max_rows_per_window is None
    assert rule(place, env, SESSIONS).max_rows_per_window is None
    with pytest.raises(RuleInvalid, match="max_rows_per_window: expected SQL with windows of fixed sizes"):
        rule(place, {}, STATELESS, max_rows_per_window=9)


def test_a_limit_that_a_source_cannot_have_is_no_limit_of_its_rules(place: Path) -> None:
    env = {"FLOODMARK_EPOCH_MAX_FILES": "10", "FLOODMARK_EPOCH_MAX_SECONDS": "300"}
    kafka = {"streams": {"events": {"kafka": {"connection": "shop", "topic": "t", "format": "text"}}}}
    sql = "SELECT value FROM events"
    assert rule(place, env, sql, **kafka).epoch.model_dump(exclude_none=True) == {}
    assert rule(place, env, sql, **kafka, epoch={"max_rows": 5}).epoch.model_dump(exclude_none=True) == {"max_rows": 5}
    files = {"streams": {"events": {"files": {"path": str(place / "in"), "format": "text"}}}}
    assert rule(place, env, sql, **files).epoch.model_dump(exclude_none=True) == {"max_files": 10}
    assert rule(place, env).epoch.model_dump(exclude_none=True) == {"max_files": 10, "max_seconds": 300}
    with pytest.raises(RuleInvalid, match=r"epoch\.max_files: Kafka streams cannot be bounded by max_files"):
        rule(place, env, sql, **kafka, epoch={"max_files": 3})


def test_an_idle_run_knows_the_text_of_a_rule_that_goes_without_a_limit(place: Path) -> None:
    """Its ledger has the text as it runs. Another one is checked again, which loads the SQL parser."""
    kafka = {"kafka": {"connection": "shop", "topic": "t", "format": "text"}}
    flow = Flow(place, sql="SELECT value FROM events")
    flow.settings = {"streams": {"events": kafka}}
    path, env, asked = flow.write_rule(), {"FLOODMARK_EPOCH_MAX_FILES": "10"}, list[str]()

    def has_run(rule: Rule) -> bool:
        asked.append(rule.to_json())
        return True

    assert load_rule(path, env, has_run).to_json() == load_rule(path, env).to_json()
    assert asked == [load_rule(path, env).to_json()]


def test_plan_does_not_trace_a_limit_that_a_rule_goes_without(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_MAX_ROWS_PER_WINDOW", "9")
    path = Flow(place, sql=STATELESS).write_rule()
    plan = plan_of(load_rule(path, os.environ), path.parent, place / "home")
    (found,) = [one for one in plan.settings if one.name == "max_rows_per_window"]
    assert (found.value, found.origin) == (None, "default")


@pytest.mark.parametrize(
    ("env", "written", "what"),
    [
        (
            {"FLOODMARK_CLEANUP_KEEP_LOG": "5 days"}, {},
            "`cleanup.keep_log` is from FLOODMARK_CLEANUP_KEEP_LOG of the environment: change that, or write the key",
        ),
        (
            {"FLOODMARK_CLEANUP_KEEP_LOG": "5 days", "FLOODMARK_CLEANUP_KEEP": "60 days"},
            {"cleanup": {"keep": "9 days"}},
            "found a mapping; `cleanup.keep_log` is from FLOODMARK_CLEANUP_KEEP_LOG of the environment",
        ),
        (
            {"FLOODMARK_REBUILD": "true"}, {"late": {"amend": "1 hour"}},
            "so no row is late; `rebuild` is from FLOODMARK_REBUILD of the environment: change that, or write the key",
        ),
    ],
)  # fmt: skip
def test_a_value_that_a_rule_cannot_have_is_told_with_the_variable(
    place: Path, env: dict[str, str], written: dict[str, Any], what: str
) -> None:
    with pytest.raises(RuleInvalid) as caught:
        rule(place, env, **written)
    assert what in str(caught.value)


def test_a_problem_of_the_file_itself_blames_no_variable(place: Path) -> None:
    env = {"FLOODMARK_CLEANUP_EVERY": "1 day", "FLOODMARK_REBUILD": "true", "FLOODMARK_EPOCH_MAX_FILES": "1"}
    for written in ({"epoch": "all"}, {"epoch": {"max_files": 0}, "cleanup": {"kept": 1}}, {"cleanup": 5}):
        with pytest.raises(RuleInvalid) as caught:
            rule(place, env, **written)
        assert "FLOODMARK_" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("FLOODMARK_EPOCH_MAX_SECONDS", "5 minutes", "expected a whole number, found '5 minutes'"),
        ("FLOODMARK_EPOCH_MAX_FILES", "0", "expected a whole number of at least 1"),
        ("FLOODMARK_REBUILD", "perhaps", "expected true or false"),
        ("FLOODMARK_CLEANUP_KEEP", "1 minute", "expected at least 1 hour"),
        ("FLOODMARK_CLEANUP_EVERY", "3651 days", r"expected at most 3650 days \(10 years\), found '3651 days'"),
        ("FLOODMARK_CLEANUP_EVERY", "1 month", "is not a fixed length of time"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_the_name_of_the_variable(
    place: Path, name: str, value: str, what: str
) -> None:
    with pytest.raises(RuleInvalid, match=what) as caught:
        rule(place, {name: value})
    assert f"the environment variable {name}: " in str(caught.value)


def test_plan_says_that_a_value_is_the_installations_and_doctor_knows_the_names(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOODMARK_EPOCH_MAX_SECONDS", "300")
    path = Flow(place).write_rule()
    assert Origins("counted", path.parent).of(("epoch", "max_seconds")) == (
        "environment", "FLOODMARK_EPOCH_MAX_SECONDS from the environment",
    )  # fmt: skip
    assert Origins("counted", path.parent).of(("epoch", "max_files"))[0] == "default"
    assert not [one for one in settings(os.environ, "UTC", ()) if one.name == "FLOODMARK_EPOCH_MAX_SECONDS"]


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ({"epoch": "none"}, "expected `rebuild: true` with `epoch: none`"),
        ({"rebuild": True}, "expected `epoch: none` with `rebuild: true`, found nothing"),
        ({"rebuild": True, "epoch": {"max_files": 1}}, "found limits"),
        ({"epoch": "all"}, "epoch: expected limits such as"),
        ({"epoch": {"max_seconds": "5 minutes"}}, "epoch.max_seconds: expected a whole number"),
        ({"cleanup": {"keep": "2 days", "keep_log": "1 day"}}, "expected `keep_log` of at least `keep`"),
        ({"cleanup": {"keep": "10 minutes"}}, "cleanup.keep: expected at least 1 hour"),
        ({"cleanup": {"every": "9999999 days"}}, "cleanup.every: expected at most 3650 days"),
        ({"cleanup": {"kept": "1 day"}}, "did you mean 'keep'"),
        ({"max_rows_per_window": 1, "windows": "slices"}, "expected `windows: rows` next to it"),
        ({"max_rows_per_window": 0}, "max_rows_per_window: expected a whole number of at least 1"),
        ({"epoch": "none", "rebuild": True, "close_idle_after": "1 hour"}, "close_idle_after: expected none with"),
        ({"epoch": "none", "rebuild": True, "late": {"amend": "1 hour"}}, "late: expected no {amend: ...} with"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_their_place(place: Path, written: dict[str, Any], what: str) -> None:
    with pytest.raises(RuleInvalid) as caught:
        rule(place, {}, **written)
    assert what in str(caught.value)


def test_a_rebuilt_rule_has_no_key_and_begins_where_there_is_something(place: Path) -> None:
    rebuilt = {"epoch": "none", "rebuild": True}
    flow = Flow(place, stream={"start": "latest"}, settings=rebuilt)
    with pytest.raises(RuleInvalid, match=r"streams.events.start: expected earliest"):
        load_rule(flow.write_rule(), {})
    keyed = Flow(place, settings={**rebuilt, "sinks": [{"delta": flow.sink(), "key": ["k"]}]})
    with pytest.raises(RuleInvalid, match=r"sinks\[0\].key: expected no `key` with `rebuild: true`"):
        load_rule(keyed.write_rule(), {})


def test_a_limit_that_changes_what_is_kept_is_an_edit_that_needs_a_reset(place: Path) -> None:
    sliding = "SELECT window.start AS start, count(*) AS c FROM events GROUP BY window(at, '1 hour', '5 minutes')"
    with pytest.raises(RuleChanged, match="windows or max_rows_per_window"):
        check_edit(rule(place, {}, sliding), rule(place, {}, sliding, max_rows_per_window=10))
    check_edit(rule(place, {}, max_rows_per_window=3), rule(place, {}, max_rows_per_window=4))
    check_edit(rule(place, {}), rule(place, {}, max_rows_per_window=4))
