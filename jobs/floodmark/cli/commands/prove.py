"""`floodmark prove`: run the crash matrix on a user's rule."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.commands.run import moment
from floodmark.cli.shared import options, output
from floodmark.errors import FloodmarkError, HomeUnfit, Refused

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule
    from floodmark.proving.judge.judging import Matrix
    from floodmark.proving.play.played import ProgressListener, Wish
    from floodmark.proving.scratch import Scratch

SHOWN = 20  # findings on a screen; --json and the page have them all


def prove(
    name: options.RuleName,
    rows: Annotated[int, typer.Option("--rows", min=3, help="Maximum number of rows to take from each stream.")] = 4000,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="POINT", help="Only faults at this crash point; may be repeated."),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="KIND",
            help="Only this kind of fault: killed, twice, stopped or replayed; may be repeated.",
        ),
    ] = None,
    close_until: Annotated[
        datetime | None,
        typer.Option(
            help="As for `run`: after the sample, close open windows up to this time.", metavar="T", parser=moment
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.html", help="Also write the report as one HTML page.")
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            "--scratch", metavar="DIR", help="Work in a new folder inside this one.", show_default="HOME/.prove"
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the scratch folder, for inspection.")] = False,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    master: options.Master = options.MASTER,
    as_json: options.AsJson = False,
) -> None:
    """Kill copies of a rule at every point of an epoch, with real signals, and compare the results. Takes minutes.

    A sample of each stream is copied to a scratch folder. One copy of the rule runs undisturbed. Each other copy gets
    one fault: all its processes are killed at a crash point; killed there twice in a row; or stopped there, retried
    meanwhile, and resumed. Corrections are hit, too: the input of copies is rewritten, and a run that corrects their
    results is killed. Then a new run recovers each copy. Sinks, state, ledger, late and dead rows must equal those of
    the undisturbed run, or what the rule's qos promises. Replays with other epochs must give the same sinks. The
    rule's own ledger, state and sinks are neither read nor written: copies of targets have places of their own.

    Exit codes: 0 proven, 3 a promise is broken, 1 unknown or unfinished, 2 refused.

    Examples: `floodmark prove departure_delays --report proof.html`,
    `floodmark prove departure_delays --only sink0.after --fault killed`
    """
    from floodmark.cli.runs.proofprogress import ProofProgress
    from floodmark.cli.shared.selection import rule_named
    from floodmark.proving.judge.verdicts import EXIT_CODES
    from floodmark.proving.play.played import Wish
    from floodmark.proving.report import facts
    from floodmark.proving.scratch import target_places

    rule = _over_landings(rule_named(rules, name), home.absolute())
    until = None if close_until is None else close_until.isoformat()
    wish = Wish(rows, tuple(only or ()), _kinds(fault), master, until)
    _refuse(rule, wish, report)
    with (
        _stopped_by_signals(),
        _scratch(rule, scratch or home.absolute() / ".prove", keep, as_json) as place,
        target_places(rule, place, keep, partial(output.say, err=as_json)),
    ):
        with ProofProgress(err=as_json) as teller:
            matrix = _matrix(rule, wish, place, teller)
        if report is not None:
            _write(matrix, report)
    if as_json:
        output.print_json(facts(matrix))
    else:
        _report(matrix, report)
    raise typer.Exit(EXIT_CODES[matrix.verdict])


def _over_landings(rule: Rule, home: Path) -> Rule:
    """The rule over what its streams have landed, if they have a landing: its rows come in the same order again.

    Raises Refused if that is not there yet, and its source gives rows only once.
    """
    from floodmark.connectors.backlog.landings import over_landings
    from floodmark.connectors.ports.registry import check_rereads
    from floodmark.ledger.home import Home

    found = over_landings(rule, Home(home, rule.rule))
    check_rereads(found)
    return found


def _kinds(wanted: list[str] | None) -> tuple[str, ...]:
    from floodmark.proving.faultplan import KINDS

    unknown = sorted(set(wanted or ()) - set(KINDS))
    if unknown:
        raise Refused(f"--fault: expected kinds out of {', '.join(KINDS)}, found {', '.join(unknown)}")
    return tuple(wanted) if wanted else KINDS


def _refuse(rule: Rule, wish: Wish, report: Path | None) -> None:
    """Refuse what can be refused before anything is created."""
    if rule.rebuild:
        raise Refused(f"rule {rule.rule}: each run rebuilds the rule in one epoch, which no sample can divide")
    from floodmark.connectors.preflight import check_streams
    from floodmark.core.rules.kinds import SINKS, sink_kind, sinks_beside_tables
    from floodmark.proving.faultplan import check_points

    for sink in (one for one in sinks_beside_tables(rule) if sink_kind(one.kind).scratch is None):
        known = ", ".join(kind for kind in SINKS if sink_kind(kind).scratch is not None)
        raise Refused(
            f"rule {rule.rule}, sink {sink.label}: expected only sinks of the kinds delta, {known}, because copies of "
            f"the rule need sinks of their own; found {sink.kind}. Prove a copy of the rule file without this sink"
        )

    check_points(wish.only, sum(sink.address is not None for sink in rule.sinks))
    if not wish.master.startswith("local"):
        raise Refused(
            f"--master: expected local[...], found {wish.master}: prove can kill only processes of this machine"
        )
    if not Path("/proc/self/stat").exists():
        raise Refused("expected a system with /proc, to find all processes of a run; this one has none")
    if report is not None and not report.absolute().parent.is_dir():
        raise Refused(f"--report: expected a folder at {report.absolute().parent}, found none: create it first")
    if wish.close_until is not None and rule.process is None and not rule.query.windows:
        raise Refused(f"--close-until: rule {rule.rule} has no window and no JOIN, so there is nothing to close")
    check_streams(rule, None)


@contextmanager
def _scratch(rule: Rule, folder: Path, keep: bool, quiet: bool) -> Iterator[Scratch]:
    """A new folder for this proof; removed when the proof ends, unless `keep`."""
    from floodmark.proving.scratch import Scratch, scratch_folder

    with ExitStack() as stack:
        try:
            root = stack.enter_context(scratch_folder(folder, rule.rule, rule.qos, keep))
        except HomeUnfit as fault:
            raise HomeUnfit(f"--scratch: {fault}") from None
        output.say(f"scratch folder: {root}", err=quiet)
        yield Scratch(root)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C: kill started processes and remove created files."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _matrix(rule: Rule, wish: Wish, scratch: Scratch, teller: ProgressListener) -> Matrix:
    from floodmark.proving.judge.judging import judged
    from floodmark.proving.play.played import NothingFinal
    from floodmark.proving.play.script import Play

    try:
        played = Play(rule, wish, scratch, teller).run()
    except NothingFinal as fault:
        raise Refused(f"{fault}. {_open(scratch)}") from None
    return judged(played, teller.doing)


def _open(scratch: Scratch) -> str:
    """What the undisturbed run waits for."""
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader
    from floodmark.proving.faultplan import REFERENCE
    from floodmark.views.contents.openwindows import open_windows
    from floodmark.views.contents.waiting import waiting

    rule = scratch.rule(REFERENCE)
    ledger = LedgerReader.load(Home(scratch.home, REFERENCE).ledger)
    if ledger is None or ledger.head is None:
        return "Its ledger is empty"
    found = open_windows(rule, ledger.head, scratch.home) or waiting(rule, ledger.head, scratch.home)
    return found.text() if found else "The SQL returns no row for the sample"


def _write(matrix: Matrix, report: Path) -> None:
    from floodmark.proving.page import page

    try:
        report.write_text(page(matrix), encoding="utf-8")
    except OSError as fault:
        raise FloodmarkError(f"--report: {report} cannot be written: {fault.strerror}") from fault


def _report(matrix: Matrix, report: Path | None) -> None:
    from floodmark.proving import report as words
    from floodmark.proving.faultplan import FAULTS, TITLES

    columns = ["crash point", *(TITLES[fault] for fault in FAULTS)]
    cells = [[point, *(words.SIGNS[verdict] for verdict, _ in row)] for point, row in words.grid(matrix)]
    output.table(columns, cells)
    output.say()
    others = [[words.title(one), one.epochs, words.SIGNS[one.verdict]] for one in matrix.copies if not one.planned]
    output.table(["run", "epochs", "verdict"], others)
    output.say(" · ".join(f"{sign} {word}" for word, sign in words.SIGNS.items()))
    output.say()
    found = words.findings(matrix)
    for finding in found[:SHOWN]:
        output.say(finding)
    if len(found) > SHOWN:
        output.say(f"… and {len(found) - SHOWN} more: --json prints all of them")
    for line in words.summary(matrix):
        output.say(line)
    output.say(
        "not tested: power loss, and the other cases that the report lists" + (f"; report: {report}" if report else "")
    )
