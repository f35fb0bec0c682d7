"""`floodmark audit`: the exactly-once certificate of a rule."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.shared import options, output
from floodmark.core.text.tablenames import table_label
from floodmark.errors import Refused

if TYPE_CHECKING:
    from floodmark.audit.certificate import Certificate
    from floodmark.audit.evidence import Finding

SHOWN = 20  # findings on a screen; --json has them all
COLUMNS = ("table", "commits", "found", "pruned", "again at qos 1", "open", "rewrites", "recomputed")
MEANING = {
    "proven": "every epoch took effect exactly once, according to this rule's ledger and table logs",
    "broken": "the ledger and the tables contradict themselves or each other",
    "unknown": "no contradiction found, but not everything could be checked",
}


def audit(
    name: options.RuleName,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read the tables' files, and recompute what they contain.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="EPOCH|TIME",
            help="Judge this epoch and later ones only: what cannot be looked up of earlier ones does not count. A "
            "time means the last epoch that had ended by then.",
        ),
    ] = None,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Check what ledger and table logs prove about a rule: PROVEN, BROKEN or UNKNOWN. Needs no rule file and no JVM.

    Table logs are cut in the course of time, and nobody can look up what they said. So audit at intervals, each time
    since the last epoch of the report before: together, these reports prove all epochs.

    The folder of rules is read for an environment's file only, which is beside it.

    Exit codes: 0 proven, 3 broken, 1 unknown. Example: `floodmark audit departure_delays --deep --since 311`
    """
    from floodmark.audit.certificate import NotEnded
    from floodmark.audit.certificate import audit as audited
    from floodmark.audit.evidence import EXIT_CODES
    from floodmark.cli.shared.selection import not_run
    from floodmark.connectors.ports.registry import account
    from floodmark.connectors.relay.holding import held_by
    from floodmark.ledger.home import Home

    place = Home(home.absolute(), name)
    moment, targets = None if since is None else _moment(since), partial(held_by, place)
    try:
        found = audited(name, place.root, deep, accounts=account, targets=targets, since=moment)
    except NotEnded as fault:
        raise Refused(f"--since: {fault}") from None
    if found is None:
        raise not_run(place.root, name)
    code = EXIT_CODES[found.verdict]
    if as_json:
        output.print_json({**found.facts(), "exit_code": code})
    else:
        _show(found)
    raise typer.Exit(code)


def _moment(text: str) -> int | datetime:
    """An epoch, or a time, in UTC unless it has a zone. Raises Refused for anything else."""
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(
            f"--since: expected an epoch, such as 311, or a time, such as 2001-01-01T00:00Z, found {text}"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _show(found: Certificate) -> None:
    scope = "" if found.since is None else f" since epoch {found.since.epoch} of generation {found.since.generation}"
    output.say(f"{found.rule}: {found.verdict.upper()}{scope}: {MEANING[found.verdict]}")
    decided = found.decided_since
    if found.verdict == "unknown" and decided is not None:
        output.say(f"everything from epoch {decided.epoch} of generation {decided.generation} on is proven (--since)")
    output.say(f"ledger {found.ledger}, {found.rows} rows, head {found.head}")
    for facts in found.facts()["generations"]:
        rows = ", ".join(f"{count} {part}" for part, count in facts["rows"].items())
        ended = f"{facts['epochs']} epochs in {facts['attempts']} attempts{', sealed' if facts['sealed'] else ''}"
        ended += f", {facts['backfills']} backfilled" if facts["backfills"] else ""
        deferred = facts["deferred"]
        ended += f", {deferred} rewrites of sources have yet to be corrected" if deferred else ""
        output.say(f"generation {facts['generation']}: {ended}; rows: {rows}; {facts['output']} results")
    tallies = sorted(found.tables.items())
    output.table(
        COLUMNS,
        [
            [
                table_label(table),
                one.named,
                one.seen,
                one.pruned,
                one.repeated,
                one.pending,
                one.rewrites,
                _recomputed(found, one.recomputed),
            ]
            for table, one in tallies
        ],
    )
    if undigested := sum(one.undigested for one in found.tables.values()):
        output.say(f"{undigested} commits have no digest to compare: they were written before digests were introduced")
    for table, lacking in sorted(found.undelivered.items()):
        output.say(f"{table_label(table)}: {lacking} rows undelivered: the target refused them, and they are kept")
    for table, behind in sorted(found.behind.items()):
        if behind is None and not found.deep:
            output.say(f"{table_label(table)}: its outbox was checked. Whether the target has the rows, --deep asks it")
        elif behind:
            portions = "1 portion is" if behind == 1 else f"{behind} portions are"
            output.say(f"{table_label(table)}: {portions} not shipped yet, and not judged")
    counting = [one for one in found.findings if not found.leaves_out(one)]
    for finding in counting[:SHOWN]:
        output.say(_finding_line(finding))
    for name in sorted({one.table for one in counting[:SHOWN] if one.table and one.table.startswith("sink/")}):
        output.say(f"{table_label(name)}: {name.removeprefix('sink/')}")
    if len(counting) > SHOWN:
        output.say(f"… and {len(counting) - SHOWN} more: --json prints all of them")
    if earlier := len(found.findings) - len(counting):
        output.say(f"{earlier} findings on earlier epochs do not count: --json prints them")


def _recomputed(found: Certificate, count: int) -> int | None:
    return count if found.deep else None


def _finding_line(finding: Finding) -> str:
    places = ("table", "generation", "epoch", "commit", "row")
    where = ", ".join(
        f"{place} {value}" if place != "table" else table_label(str(value))
        for place in places
        if (value := getattr(finding, place)) is not None
    )
    return (
        f"{finding.verdict.upper()} {where}: {finding.what}" if where else f"{finding.verdict.upper()} {finding.what}"
    )
