"""Streams of one rule that answer rewrites in different ways: what a run passes over, and what it gives up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.flow import SCHEMA, Flow, event
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.commands import correct as cli_correct
from floodmark.connectors.planning.rewrites import answered, check_followed, deferred, rewrites
from floodmark.connectors.planning.rewrites import unread as beyond
from floodmark.connectors.ports.registry import sources
from floodmark.core.lifecycle.changes import check_keeps_corrections
from floodmark.core.lifecycle.corrections import Skips, given_up, skips
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Rewrite
from floodmark.core.protocol.records.rows import Commit, Life
from floodmark.core.rules.rule import Rule
from floodmark.errors import Refused
from floodmark.ledger.ledger import Ledger
from floodmark.spark.rule.epochs import draining
from floodmark.spark.rule.epochs.draining import Drainer
from floodmark.spark.rule.epochs.reports import RunReport
from floodmark.spark.rule.held import HeldRule
from floodmark.views import needs

UNION = """SELECT window.start AS start, k, count(*) AS c
FROM (SELECT at, k FROM events UNION ALL SELECT at, k FROM others) AS e GROUP BY window(at, '1 minute'), k"""


@pytest.fixture
def flow(place: Path) -> Flow:
    """A rule that corrects `events` and stops at `others`; it has read all of both."""
    made = Flow(place.resolve(), sql=UNION, sinks=1)
    each = {"event_time": "at", "lateness": "30 seconds"}
    tables = {"events": made.source, "others": f"{made.source}_b"}
    made.settings = {"streams": {name: {"delta": at, **each} for name, at in tables.items()}}
    made.settings["streams"]["events"]["on_rewrite"] = "correct"
    for at in tables.values():
        write_deltalake(at, pa.Table.from_pylist([event(1, "a"), event(2, "b")], schema=SCHEMA))
    made.write_rule()
    rule = made.rule()
    entry = Entry(0, tuple(source.end() for source in sources(rule, made.place).values())).text()
    begin = Commit(entry=entry, watermark=None, maxima={}, rule=rule.to_json())
    Ledger.open(made.place.ledger, "by hand").begin(1, "token", begin)
    return made


def rewrite(flow: Flow, stream: str) -> None:
    DeltaTable(flow.settings["streams"][stream]["delta"]).delete("k = 'a'")


class Planned:
    """The rule of a plan."""

    def __init__(self, rule: Rule):
        self.rule = rule


class Recording(Drainer):
    """Counts how often Spark would plan epochs."""

    drained = 0

    def drain(self, session: Any, plan: Any, *_: Any, **__: Any) -> None:
        self.drained += 1


@pytest.mark.parametrize("limits", [{}, {"epoch": {"max_seconds": 60}}], ids=["whole", "paced"])
@pytest.mark.parametrize("first", [("events", "others"), ("others",)], ids=["beside-a-correction", "alone"])
def test_what_is_passed_over_needs_no_unread_input(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], first: tuple[str, ...]
) -> None:
    monkeypatch.setattr(draining, "check_can_correct", lambda plan, home, head, rewritten: None)
    monkeypatch.setattr(draining, "paced", lambda rule, home, ledger: None)
    flow.settings |= limits
    for stream in first:
        rewrite(flow, stream)
    ledger = Ledger.open(flow.place.ledger, "by hand")
    rule = answered(flow.rule(), flow.place, ledger.begun, "skip")
    drainer = Recording(flow.place, ledger, RunReport(rule.rule), print, None, None)
    drainer.drain_all(None, Planned(rule))  # type: ignore[arg-type]
    assert (drainer.drained, [*ledger.begun.deferred]) == (1, [*first[:-1]])


def test_nobody_is_sent_to_skip_where_a_run_would_stop_again(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """A RESTORE only brings back what a DELETE had taken, and the rule cannot be corrected."""
    others = DeltaTable(flow.settings["streams"]["others"]["delta"])
    others.delete()
    head = Ledger.open(flow.place.ledger, "by hand").begun
    flow.settings["streams"]["others"]["start"] = "latest"
    with pytest.raises(Refused, match=r"cannot be corrected: .*`floodmark reset counted`, or pass .* --skip`"):
        answered(flow.rule(), flow.place, head, "correct")
    others.restore(0)
    with pytest.raises(Refused, match=r"cannot be corrected: .*`floodmark reset counted`$"):
        answered(flow.rule(), flow.place, head, "correct")
    monkeypatch.setattr(cli_correct, "with_spark", lambda *_: pytest.fail("Spark was started"))
    words = ["correct", flow.name, "--skip", "--yes", "--rules", str(flow.root / "rules"), "--home", str(flow.home)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 3 and "version 2 of the table is a RESTORE" in done.output, done.output


class Asked:
    """A run, which only says whether it is to give deferred rewrites up."""

    gives_up: tuple[str, ...] | None = None

    def run(self, gives_up: Mapping[str, Sequence[Rewrite]]) -> RunReport:
        self.gives_up = tuple(gives_up)
        return RunReport("counted")


@pytest.mark.parametrize(("stream", "gives_up"), [("others", ()), (None, ("events",))])
def test_deferred_rewrites_are_given_up_only_where_no_stream_has_stopped(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, stream: str | None, gives_up: tuple[str, ...]
) -> None:
    rewrite(flow, "events")
    ledger, asked = Ledger.open(flow.place.ledger, "by hand"), Asked()
    found = rewrites(flow.rule(), flow.place, ledger.begun)
    ledger.defer(deferred(flow.rule(), flow.place, ledger.begun, found))
    if stream is not None:
        rewrite(flow, stream)
    monkeypatch.setattr(cli_correct, "with_spark", lambda rule, master, work, others=(): work(None))
    monkeypatch.setattr(cli_correct, "_job", lambda session, rule, change: asked)
    words = ["correct", flow.name, "--skip", "--yes", "--rules", str(flow.root / "rules"), "--home", str(flow.home)]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, asked.gives_up) == (0, gives_up), done.output
    over = "stream others: commits that remove or change rows will be passed over, from version 1 (DELETE) on"
    assert (over in done.output) == (stream is not None)
    assert ("stream events: the correction of version 1 (DELETE) will be given up" in done.output) == bool(gives_up)


def rewritten(*streams: str) -> dict[str, Rewrite]:
    return {name: Rewrite(since="a", upto="b", commits=(f"version 1 of {name}",)) for name in streams}


def deferring(*streams: str) -> dict[str, tuple[Rewrite, ...]]:
    return {name: (one,) for name, one in rewritten(*streams).items()}


@pytest.mark.parametrize(
    ("unread", "waits", "only", "over", "given_up"),
    [
        (["others"], [], ["events", "others"], ["others"], []),  # a kill came after `events` had been given up
        ([], ["events"], ["events", "others"], [], ["events"]),
        (["events", "others"], [], [], ["others"], []),
        (["events", "others"], ["events"], [], ["others"], []),
        (["others"], ["events", "others"], [], ["others"], ["others"]),
        (["events"], ["events"], [], [], ["events"]),
        (["events"], [], [], [], []),
        (["events"], [], ["events"], ["events"], []),
        (["others"], ["events"], ["others"], ["others"], []),
        (["others"], ["events"], ["others", "events"], ["others"], ["events"]),
        ([], ["events", "others"], ["events"], [], ["events"]),
    ],
)
def test_what_is_skipped_of_streams_that_stop_and_that_are_corrected(
    flow: Flow, unread: list[str], waits: list[str], only: list[str], over: list[str], given_up: list[str]
) -> None:
    head = replace(Ledger.open(flow.place.ledger, "by hand").begun, deferred=deferring(*waits))
    found = skips(flow.rule(), head, rewritten(*unread), only)
    assert ([*found.over], [*found.given_up]) == (over, given_up)
    answered = {*only}.difference(over, given_up)
    assert len([*found.described()]) == len(over) + len(given_up) + len(answered)
    assert all(f"stream {name}: no commit is left to pass over" in found.described() for name in answered)


@pytest.mark.parametrize(
    ("unread", "corrected", "only", "problem"),
    [
        (["others"], [], ["events"], "--stream events: expected .* found these: others"),
        ([], [], ["unknown"], "--stream unknown: expected .* found these: none"),
        (["others"], [], ["others", "unknown"], "--stream unknown: expected .* found these: others"),
        (["events", "others"], [], ["events"], "stream others has stopped the rule, too.*`--stream others`"),
        (["others"], ["others"], [], "stream others: .*cannot forget them.*`floodmark correct counted`"),
        (["events"], ["events"], ["events"], "stream events: .*cannot forget them.*`floodmark reset counted`"),
    ],
)
def test_what_cannot_be_skipped_is_refused_before_a_run(
    flow: Flow, unread: list[str], corrected: list[str], only: list[str], problem: str
) -> None:
    head = replace(Ledger.open(flow.place.ledger, "by hand").begun, corrected=tuple(corrected))
    with pytest.raises(Refused, match=problem):
        skips(flow.rule(), head, rewritten(*unread), only)


def test_of_a_stream_that_was_corrected_before_only_what_waits_is_given_up(flow: Flow) -> None:
    begun = Ledger.open(flow.place.ledger, "by hand").begun
    head = replace(begun, corrected=("events",), deferred=deferring("events"))
    found = skips(flow.rule(), head, rewritten("events"), ["events"])
    assert ([*found.over], [*found.given_up]) == ([], ["events"])


class Landed:
    """A landing, which says from where on its rows are needed."""

    def upkeep(self, line: str | None, keep_us: int | None) -> Any:
        return line


def test_nothing_is_given_up_that_was_deferred_after_the_decision(flow: Flow) -> None:
    """Each rewrite ends further on; one that another run has corrected meanwhile is no longer there."""
    begun, shown = Ledger.open(flow.place.ledger, "by hand").begun, deferring("events", "others")
    [first] = shown["events"]
    more = Rewrite(since=first.upto, upto="c", commits=("version 2 of events",))
    assert given_up(replace(begun, deferred={"events": (first,)}), shown) == {"events": ["version 1 of events"]}
    assert given_up(replace(begun, deferred={"others": (more,)}), {"events": (first,)}) == {}
    for grown in ((first, more), (more,)):
        with pytest.raises(
            Refused, match=r"another run has since deferred more: .*version 2 of events\. Nothing was given"
        ):
            given_up(replace(begun, deferred={"events": grown}), shown)


@pytest.mark.parametrize("answer", ["correct", "skip"])
def test_the_row_that_gives_up_says_of_which_streams_more_is_passed_over(flow: Flow, answer: str) -> None:
    """By it, a retry tells what a kill has left from commits that came later."""
    rewrite(flow, "events")
    ledger = Ledger.open(flow.place.ledger, "by hand")
    found = rewrites(flow.rule(), flow.place, ledger.begun)
    shown = ledger.defer(deferred(flow.rule(), flow.place, ledger.begun, found)).deferred
    flow.settings["streams"]["events"]["on_rewrite"] = answer
    drainer: Any = SimpleNamespace(head=ledger.begun)
    none: Any = None
    HeldRule(none, flow.rule(), flow.place, ledger, RunReport("counted"), drainer).give_up(shown)
    over = Life.model_validate_json(ledger.rows[-1].body).over
    assert (ledger.begun.deferred, over) == ({}, ("events",) if answer == "skip" else ())


def test_landed_rows_stay_while_a_correction_waits(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the rows of all streams again, from the start."""
    monkeypatch.setattr(needs, "landings", lambda rule, place: {"others": Landed()})
    monkeypatch.setattr(needs, "outboxes", lambda rule, place: [])
    head = Ledger.open(flow.place.ledger, "by hand").begun
    start, now = head.lines["others"], head.lines["others"] + " "
    head = replace(head, entry=Entry(0, (head.lines["events"], now)))
    waiting = Rewrite(since="", upto="", commits=())
    for changed, line in ((head, now), (replace(head, deferred={"events": (waiting,)}), start)):
        assert needs._landings(flow.rule(), flow.place, changed) == [line]


# --- The ways that a refused correction names


def defer(ledger: Ledger, flow: Flow, *streams: str) -> None:
    for stream in streams:
        rewrite(flow, stream)
    if streams:
        ledger.defer(deferred(flow.rule(), flow.place, ledger.begun, rewrites(flow.rule(), flow.place, ledger.begun)))


def ways_past(said: str) -> tuple[list[str], list[str]]:
    """The streams that a refusal would have skipped by the command, and by the file."""
    by_file = re.search(r"`on_rewrite: skip` at stream (.*) passes", said)
    return re.findall(r" --stream (\w+)", said), by_file[1].split(", ") if by_file else []


@pytest.mark.parametrize("corrected", [(), ("events",), ("others",), ("events", "others")])
@pytest.mark.parametrize(
    ("waits", "unread"),
    [
        ((), ("events",)),
        ((), ("events", "others")),
        (("events",), ()),
        (("events",), ("others",)),
        (("events",), ("events",)),
        (("events", "others"), ()),
        (("events", "others"), ("others",)),
    ],
)
def test_each_way_that_a_refused_correction_names_works(
    flow: Flow, waits: tuple[str, ...], unread: tuple[str, ...], corrected: tuple[str, ...]
) -> None:
    flow.settings["streams"]["others"]["on_rewrite"] = "correct"
    ledger = Ledger.open(flow.place.ledger, "by hand")
    defer(ledger, flow, *waits)
    for stream in unread:
        rewrite_again(flow, stream)
    rule, head = flow.rule(), replace(ledger.begun, kept_output=True, corrected=corrected)
    with pytest.raises(Refused, match=r"rows from before a reset.*`floodmark reset counted` recomputes") as fault:
        check_followed(rule, flow.place, head)
    by_command, by_file = ways_past(str(fault.value))
    assert bool(by_command or by_file) != bool({*unread} & {*corrected}), "what was corrected is never passed over"
    assert not (by_command and by_file)
    done = skips(rule, head, beyond(rule, flow.place, head), by_command) if by_command else Skips({}, {})
    after = replace(head, deferred={name: one for name, one in head.deferred.items() if name not in done.given_up})
    if by_command or by_file:
        passing = answered(rule, flow.place, head, "skip", {*done.over, *by_file})
        check_keeps_corrections(passing, after.followed)
        check_followed(passing, flow.place, after)


def rewrite_again(flow: Flow, stream: str) -> None:
    """Remove what `rewrite` has left."""
    DeltaTable(flow.settings["streams"][stream]["delta"]).delete("k = 'b'")
