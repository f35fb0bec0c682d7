"""What is gathered for pages: newest rows, histories that grow, rule files that change, points of charts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from support.byhand import begun, folded, intent
from support.flow import TUMBLING, Flow, event
from support.lives import lived
from test_ledger import commit as committed
from test_ledger import first
from test_ledger import intent as planned

from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.records.backfills import Backfill, Backfilled
from floodmark.core.protocol.records.rows import Counts, Lost, Row, Seal
from floodmark.core.protocol.tally import COUNTS
from floodmark.core.rules.rule import load_rule
from floodmark.errors import LedgerBroken, Refused, RunFailed
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.views.epochs import epoch_entries as epochs_told
from floodmark.views.history import End, History, read_history, sums
from floodmark.views.rules import rulefiles
from floodmark.views.rules.rulefiles import RuleFiles
from floodmark.views.status.glance import ROWS, glance
from floodmark.views.status.rulestatus import describe_open, rule_status
from floodmark_airflow.pages.charts import buckets, points, series


def ledger_of(address: Path, epochs: int) -> Ledger:
    made = Ledger.open(str(address), "one")
    made.begin(1, "token", first())
    fold(made, 1, epochs)
    return made


def fold(ledger: Ledger, start: int, end: int) -> None:
    for place in range(start, end + 1):
        epoch = planned(place)
        ledger.intend(epoch)
        ledger.commit(committed(epoch).model_copy(update={"output_rows": place, "seconds": {"fold": 0.5}}))


def load(ledger: Ledger) -> LedgerReader:
    found = LedgerReader.load(ledger.address)
    assert found is not None
    return found


def test_the_newest_rows_are_those_that_all_rows_end_with(tmp_path: Path) -> None:
    ledger = load(ledger_of(tmp_path / "ledger", 5))
    for count in (1, 4, 11, 50):
        assert ledger.newest(count) == ledger.rows[-count:]


def test_the_newest_rows_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = load(ledger_of(tmp_path / "ledger", 3))
    rows = ledger.newest(4)
    changed = Row(**{**rows[1].__dict__, "run": "somebody else"})
    for found in ([rows[0], changed, *rows[2:]], rows[:-1], rows[1:]):
        monkeypatch.setattr("floodmark.ledger.ledger._read", lambda _, __, found=found: found)
        with pytest.raises(LedgerBroken):
            ledger.newest(4)


def history(address: str, known: History | None = None) -> History:
    return read_history(DeltaTable(address), known)


def test_a_history_that_grows_is_the_one_that_is_read_anew(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path / "ledger", 3)
    early = history(ledger.address)
    fold(ledger, 4, 6)
    grown = history(ledger.address, early)
    assert grown == history(ledger.address)
    assert grown.ends[:3] == early.ends
    assert [end.epoch for end in grown.ends] == [1, 2, 3, 4, 5, 6]
    assert history(ledger.address, grown) == grown


def test_a_history_of_another_ledger_is_not_gone_on_with(tmp_path: Path) -> None:
    one, other = (ledger_of(tmp_path / name, 2) for name in ("one", "other"))
    assert history(other.address, history(one.address)) == history(other.address)


def test_its_sums_are_those_of_status(place: Path) -> None:
    flow = Flow(place)
    ledger = begun(flow)
    folded(flow, ledger, 1, 0, None)
    gone = intent(flow, 1, None, 0, Counts(read=4, filtered=1, folded=3))
    ledger.intend(gone)
    kept: dict[str, Any] = {name: getattr(gone, name) for name in ("entry", "watermark", "maxima", "counts")}
    ledger.lose(Lost(intent=gone.digest, lost=3, lost_epochs=(2,), due=(None, None), **kept))
    told = rule_status(flow.rule(), flow.home)
    assert told.fault is None
    assert sums(history(ledger.address).of(1)) == told.totals


def test_a_glance_says_what_status_says(place: Path) -> None:
    flow = Flow(place)
    folded(flow, begun(flow), 0, 0, None)
    seen, told = glance(flow.rule(), flow.home), rule_status(flow.rule(), flow.home)
    assert (seen.head, seen.newest, seen.lag, seen.state) == (told.head, told.newest, told.lag, told.state)
    assert seen.delivery == told.delivery
    assert seen.behind == 1
    assert [one["result"] for one in seen.epochs] == ["begun", "committed"]


def restating() -> Backfill:
    """The intent of a backfill of the rule's first epoch."""
    return Backfill(number=1, begin=0, end=1, high=1, upto=1, entry="", column="start", shift=0, counts={},
                    restated={"events": 1}, digests={}, results=Digest(), rule="{}", rule_hash="h")  # fmt: skip


def left_open(flow: Flow) -> str | None:
    head = flow.ledger().head
    assert head is not None
    return describe_open(head)


def test_what_is_left_open_is_told_with_what_becomes_of_it(place: Path) -> None:
    for qos, does in ((2, "finishes it"), (0, "counts it as lost, because its qos is 0")):
        flow = Flow(place, f"at_{qos}", settings={"qos": qos})
        ledger = begun(flow)
        assert left_open(flow) is None
        ledger.intend(intent(flow, 1, None, 0, Counts(read=1, folded=1)))
        assert left_open(flow) == f"epoch 1 is open (attempt 1); the next run {does}"


def test_a_backfill_is_left_open_like_an_epoch(place: Path) -> None:
    flow = Flow(place)
    ledger = begun(flow)
    folded(flow, ledger, 1, 0, None)
    ledger.start_backfill(restating())
    assert left_open(flow) == "backfill 1 is open (attempt 1); the next run finishes it"


def test_what_a_reset_discarded_is_not_open_any_more(place: Path) -> None:
    flow = Flow(place)
    ledger = begun(flow)
    folded(flow, ledger, 1, 0, None)
    ledger.intend(intent(flow, 1, None, 0, Counts(read=1, folded=1)))
    assert [one["result"] for one in epochs_told(ledger.rows, True, 9)] == ["begun", "committed", "open"]
    ledger.seal(Seal(why="reset", successor=2, token="new", keep_output=False, discarded=2))
    told = ["begun", "committed", "discarded", "sealed"]
    assert [one["result"] for one in epochs_told(ledger.rows, True, 9)] == told
    ledger.begin(2, "new", ledger.head.begun_with)  # type: ignore[union-attr]
    ledger.intend(intent(flow, 1, None, 0, Counts(read=1, folded=1)))
    assert [one["result"] for one in epochs_told(ledger.rows, True, 9)] == [*told, "begun", "open"]


def test_an_epoch_of_many_attempts_does_not_hide_those_before_it(place: Path) -> None:
    flow = Flow(place)
    ledger = begun(flow)
    folded(flow, ledger, 1, 0, None)
    found = intent(flow, 2, None, 0, Counts(read=1, folded=1))
    for _ in range(ROWS):
        ledger.intend(found)
    seen = glance(flow.rule(), flow.home)
    assert [(one["result"], one["attempts"]) for one in seen.epochs] == [("begun", 1), ("committed", 1), ("open", ROWS)]
    assert seen.newest is not None and seen.newest.epoch == 1


def test_a_backfill_whose_intent_is_not_among_the_rows_is_left_out(place: Path) -> None:
    flow = Flow(place)
    ledger = begun(flow)
    folded(flow, ledger, 1, 0, None)
    span = restating()
    ledger.start_backfill(span)
    ledger.end_backfill(Backfilled(number=1, intent=span.digest, tables={}, removed={}))
    folded(flow, ledger, 2, 0, None)
    rows = flow.ledger().rows
    assert [row.kind for row in rows[-4:]] == ["backfill", "backfilled", "intent", "commit"]
    assert [one["result"] for one in epochs_told(rows[-4:], True, 9)] == ["backfilled", "committed"]
    assert [one["result"] for one in epochs_told(rows[-3:], True, 9)] == ["committed"]


def test_a_glance_says_what_edit_the_next_run_will_refuse(place: Path) -> None:
    flow = Flow(place)
    folded(flow, begun(flow), 1, 0, None)
    assert glance(flow.rule(), flow.home).refused is None
    flow.stream = {"lateness": "1 minute"}
    assert "changed streams" in str(glance(flow.rule(), flow.home).refused)


def rule_text(name: str, **more: str) -> str:
    lines = {"rule": name, "sql": "SELECT k FROM e", **more}
    head = "".join(f"{key}: {value}\n" for key, value in lines.items())
    return f"{head}streams: {{e: {{delta: lake/e}}}}\nsinks: [{{delta: lake/{name}_out}}]\n"


def test_a_file_that_does_not_fit_what_is_kept_is_told_of_its_rule_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event time has another name; and what nobody foresaw is told, too, without what may be secret in it."""
    flow = Flow(place)
    lived(flow)
    flow.stream = {"event_time": {"name": "ts", "expr": "at"}}
    flow.sql = TUMBLING.replace("window(at", "window(ts")
    told = rule_status(flow.rule(), flow.home)
    assert isinstance(told.fault, Refused) and "expected the event time ts in the state of events" in told.text()

    def fails(*_: object) -> None:
        raise KeyError("https://me:secret@store/x")

    monkeypatch.setattr("floodmark.views.status.rulestatus.lag_by_stream", fails)
    told = rule_status(flow.rule(), flow.home)
    assert "KeyError" in told.text() and "secret" not in told.text()


def test_streams_are_told_by_the_offsets_of_their_names(place: Path) -> None:
    flow, other = Flow(place), Flow(place, "other")
    lived(flow)
    other.arrive([event(1)])
    text = flow.text()
    text["streams"] = {"more": {**text["streams"]["events"], "delta": other.source}, **text["streams"]}
    text["sql"] = TUMBLING.replace(
        "FROM events", "FROM (SELECT at, k, v, n FROM events UNION ALL SELECT at, k, v, n FROM more)"
    )
    path = flow.write_rule()
    path.write_text(yaml.safe_dump(text, sort_keys=False))
    told = rule_status(load_rule(path, os.environ), flow.home)
    assert told.fault is None
    assert [(name, lag.facts["version"]) for name, lag in told.lag.items() if not isinstance(lag, str)] == [
        ("events", 2)
    ]


def test_a_home_that_cannot_be_read_is_told_of_its_rule_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> int:
        raise PermissionError(13, "Permission denied", "lock")

    flow = Flow(place, "counted")
    begun(flow)
    monkeypatch.setattr("floodmark.views.status.rulestatus.holder_pid", refused)
    fault = rule_status(flow.rule(), flow.home).fault
    assert isinstance(fault, RunFailed)
    assert "rule counted: PermissionError: [Errno 13] Permission denied: 'lock'" in str(fault)


def test_a_rule_is_read_anew_where_one_that_it_names_has_changed(tmp_path: Path) -> None:
    text = rule_text("one")
    (tmp_path / "one.yaml").write_text(text)
    (tmp_path / "two.yaml").write_text(rule_text("two").replace("delta: lake/e", "rule: one"))
    files = RuleFiles(tmp_path, os.environ)
    before = files.catalog()
    assert before.rules["two"] is files.catalog().rules["two"]
    (tmp_path / "one.yaml").write_text(text.replace("lake/one_out", "lake/elsewhere"))
    assert files.catalog().rules["two"].streams["e"].address == "lake/elsewhere"


def test_a_rule_of_a_class_is_read_anew_where_its_module_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, read = Flow(tmp_path, process="totals:Totals", sinks=1), []
    flow.write_rule()
    real = rulefiles.read_rule
    monkeypatch.setattr(rulefiles, "read_rule", lambda *given: read.append(given) or real(*given))
    files = RuleFiles(tmp_path / "rules", os.environ)
    for _ in range(4):
        files.catalog()
    kept = len(read)
    assert kept <= 2, "once, and once more when it is known which module it hangs on"
    text = (tmp_path / "rules" / flow.module).read_text()
    flow.write_class(f"{text}# another\n")
    process = files.catalog().rules["counted"].process
    assert process is not None and process.source.endswith("# another\n")
    assert len(read) == kept + 1


def test_rule_files_are_read_anew_where_they_have_changed(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(rule_text("one"))
    (tmp_path / "two.yaml").write_text(rule_text("two"))
    files = RuleFiles(tmp_path, os.environ)
    before = files.catalog()
    (tmp_path / "two.yaml").write_text(rule_text("two", description="Another."))
    after = files.catalog()
    assert after.rules["one"] is before.rules["one"]
    assert after.rules["two"].description == "Another."
    (tmp_path / "two.yaml").write_text("rule: two\nqos: 7\n")
    (tmp_path / "one.yaml").unlink()
    broken = files.catalog()
    assert (list(broken.rules), list(broken.errors)) == ([], ["two.yaml"])
    (tmp_path / "two.yaml").write_text(rule_text("two"))
    assert files.catalog().rules["two"] == before.rules["two"]


def test_what_a_chain_promises_is_read_anew_where_the_first_rule_of_it_has_changed(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(rule_text("one"))
    for name, reads in (("two", "one"), ("three", "two")):
        (tmp_path / f"{name}.yaml").write_text(rule_text(name).replace("delta: lake/e}", f"rule: {reads}}}"))
    files = RuleFiles(tmp_path, os.environ)
    files.catalog()
    before = files.catalog().rules["three"]
    assert files.catalog().rules["three"] is before
    (tmp_path / "one.yaml").write_text(rule_text("one", qos="1"))
    qos = [files.catalog().rules[name].streams["e"].qos for name in ("two", "three")]
    assert (before.streams["e"].qos, qos) == (2, [1, 1])


def test_rules_that_cannot_stand_side_by_side_are_both_told(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(rule_text(name).replace(f"{name}_out", "both"))
    files = RuleFiles(tmp_path, os.environ)
    assert sorted(files.catalog().errors) == ["one.yaml", "two.yaml"]
    (tmp_path / "two.yaml").unlink()
    assert list(files.catalog().rules) == ["one"]


def test_a_missing_folder_of_rules_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="FLOODMARK_RULES"):
        RuleFiles(tmp_path / "none", os.environ).catalog()


def ends(count: int) -> list[End]:
    return [End(1, number, float(number), 1, number * 10**6, 0.5 + number % 3, read=2, output=1, late=number % 2)
            for number in range(1, count + 1)]  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 2, 299, 300, 301, 10_000])
def test_points_lose_no_row_and_are_no_more_than_asked_for(count: int) -> None:
    epochs = ends(count)
    found = points(epochs, 300)
    assert len(found) <= 300
    assert [epoch for bucket in buckets(epochs, 300) for epoch in bucket] == epochs
    for column, name in (("read", "read"), ("output", "output"), ("late", "late")):
        assert sum(point[column] for point in found) == sums(epochs)[name]
    if epochs:
        assert max(point["slowest"] for point in found) == max(epoch.seconds or 0 for epoch in epochs)
        assert (found[-1]["last"], found[-1]["watermark"]) == (count, count)


def test_times_of_a_series_never_go_back() -> None:
    """A clock that was set back would make the chart library draw backwards."""
    epochs = ends(3)
    crooked = [epochs[0], End(1, 2, 0.5, 1, None, None), epochs[2]]
    found = series(crooked)
    assert found["at"] == [1.0, 1.0, 3.0]
    assert found["watermark"] == [1.0, None, 3.0]
    assert found["slowest"][1] is None


def test_sums_of_nothing_are_nought() -> None:
    assert sums([]) == dict.fromkeys(COUNTS, 0)
    assert series([]) == {}
