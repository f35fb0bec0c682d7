"""`floodmark run`: fold new input, for one rule or for several in one Spark application."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.shared import options, output
from floodmark.cli.shared.completing import rule_names
from floodmark.cli.shared.rulechange import generated_run_id
from floodmark.core.application.failure import FailureFile
from floodmark.errors import Refused

if TYPE_CHECKING:
    from floodmark.cli.runs.outcome import Outcome
    from floodmark.cli.shared.selection import Selection
    from floodmark.core.rules.rule import Checked


def moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"expected ISO 8601, such as 2001-01-31T12:00, found {text}") from None


def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="RULE...", help="Names of rules.", autocompletion=rule_names)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All rules of the folder.")] = False,
    tag: Annotated[str | None, typer.Option("--tag", help="All rules with this tag.", metavar="T")] = None,
    parallel: Annotated[
        int | None,
        typer.Option("--parallel", min=1, help="Maximum number of rules that run at a time.", show_default="at most 4"),
    ] = None,
    run_id: options.RunId = None,
    close_until: Annotated[
        datetime | None,
        typer.Option(
            help="After all input, treat it as complete up to this event time. Earlier rows that come later are late.",
            metavar="T",
            parser=moment,
        ),
    ] = None,
    failures: Annotated[
        Path | None,
        typer.Option(help="Append a line of JSON for each rule that fails, as soon as it fails.", metavar="FILE"),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Print the results of the next epoch; write and commit nothing.")
    ] = False,
    stale_ok: Annotated[
        bool,
        typer.Option("--stale-ok", help="Report a rule that is staler than its `freshness` allows, but don't fail."),
    ] = False,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    master: options.Master = options.MASTER,
    as_json: options.AsJson = False,
) -> None:
    """Fold new input, epoch by epoch, then exit. Several rules share one Spark application.

    If there is no new input, the run starts no JVM. You can kill a run at any time and start it again: every row has
    its effect once. If one rule fails, the others still run; the failure is reported at the end.

    Example: `floodmark run departure_delays`, `floodmark run --all --parallel 2`,
    `floodmark run departure_delays --close-until 2001-01-31T00:00`, `floodmark run departure_delays --console`
    """
    if failures is not None:
        FailureFile(failures).check()
    if console:
        raise typer.Exit(_printed(_selection(rules, names or [], everything, tag), home, master, close_until, as_json))
    from floodmark.cli.runs import drain

    root, name = home.absolute(), run_id or generated_run_id()
    drained = drain.idle(
        _selection(rules, names or [], everything, tag, partial(drain.has_run, root)), root, close_until, stale_ok
    )
    if drained is None:
        selection = _selection(rules, names or [], everything, tag)
        drained = drain.drain(selection, root, master, name, parallel, as_json, close_until, failures, stale_ok)
    if as_json:
        found = {outcome.rule: outcome.facts() for outcome in drained.outcomes}
        output.print_json({"run": name, "exit_code": drained.exit_code, "rules": found})
    else:
        _report(drained.outcomes)
    raise typer.Exit(drained.exit_code)


def _printed(selection: Selection, home: Path, master: str, close_until: datetime | None, as_json: bool) -> int:
    from floodmark.cli.runs.ahead import print_ahead

    if close_until is not None or as_json:
        raise Refused("--console prints rows: it can't be combined with --close-until or --json")
    return print_ahead(selection, home.absolute(), master)


def _selection(
    folder: Path, names: list[str], everything: bool, tag: str | None, checked: Checked | None = None
) -> Selection:
    from floodmark.cli.shared import selection

    if [bool(names), everything, tag is not None].count(True) != 1:
        raise Refused(
            "expected one of these: names of rules, --all, --tag T; "
            f"found {_selected_by(names, everything, tag)}: name the rules to run"
        )
    if everything:
        return selection.all_rules(folder, checked)
    return (
        selection.rules_tagged(folder, tag, checked)
        if tag is not None
        else selection.rules_named(folder, names, checked)
    )


def _selected_by(names: list[str], everything: bool, tag: str | None) -> str:
    found = [f"{len(names)} name(s)"] * bool(names) + ["--all"] * everything + ["--tag"] * (tag is not None)
    return " and ".join(found) or "none"


def _report(outcomes: list[Outcome]) -> None:
    """The summary at the end: results first, then failures."""
    for outcome in outcomes:
        if outcome.fault is None:
            output.say(outcome.text())
    for outcome in outcomes:
        if outcome.fault is not None:
            output.print_error(outcome.text())
