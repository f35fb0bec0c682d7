"""`floodmark audit`: the exactly-once certificate of a rule."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.shared import options, output
from floodmark.core.text.tablenames import table_label

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
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Check what ledger and table logs prove about a rule: PROVEN, BROKEN or UNKNOWN. Needs no rule file and no JVM.

    Exit codes: 0 proven, 3 broken, 1 unknown. Example: `floodmark audit departure_delays --deep`
    """
    from floodmark.audit.certificate import audit as audited
    from floodmark.audit.evidence import EXIT_CODES
    from floodmark.cli.shared.selection import not_run
    from floodmark.connectors.ports.registry import account
    from floodmark.connectors.relay.holding import held_by
    from floodmark.ledger.home import Home

    place = Home(home.absolute(), name)
    found = audited(name, place.root, deep, accounts=account, targets=partial(held_by, place))
    if found is None:
        raise not_run(place.root, name)
    code = EXIT_CODES[found.verdict]
    if as_json:
        output.print_json({**found.facts(), "exit_code": code})
    else:
        _show(found)
    raise typer.Exit(code)


def _show(found: Certificate) -> None:
    output.say(f"{found.rule}: {found.verdict.upper()}: {MEANING[found.verdict]}")
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
    for finding in found.findings[:SHOWN]:
        output.say(_finding_line(finding))
    for name in sorted({one.table for one in found.findings[:SHOWN] if one.table and one.table.startswith("sink/")}):
        output.say(f"{table_label(name)}: {name.removeprefix('sink/')}")
    if len(found.findings) > SHOWN:
        output.say(f"… and {len(found.findings) - SHOWN} more: --json prints all of them")


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
