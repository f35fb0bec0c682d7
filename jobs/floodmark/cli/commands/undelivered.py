"""`floodmark undelivered list` and `replay`: rows that a target refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.commands.rows import Limit, begun
from floodmark.cli.shared import options, output
from floodmark.cli.shared.rulechange import held_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.relay.replaying import RefusedRows
    from floodmark.core.rules.model import Rule, Sink
    from floodmark.ledger.home import Home

Target = Annotated[
    str | None,
    typer.Option("--target", help="The target, by the name of its sink. Needed if there are several.", metavar="NAME"),
]


def listed(
    name: options.RuleName,
    target: Target = None,
    limit: Limit = 20,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Show the rows that a target refused (`on_error: dead` at its sink), each with its reason, the newest first.

    `_replayed` is the row of the ledger by which a replay sent the row again.

    Example: `floodmark undelivered list departure_delays --target totals`
    """
    from floodmark.views.contents.tablerows import plain

    _, sink, _, found = _refused(rules, home.absolute(), name, target)
    count, rows = found.shown(limit)
    shown = [{key: plain(value) for key, value in row.items()} for row in rows]
    if as_json:
        return output.print_json({"rule": name, "target": sink.label, "rows": count, "shown": shown})
    output.say(f"{name}: {count} rows that target {sink.label} refused")
    if shown:
        output.table(list(shown[0]), [list(row.values()) for row in shown])
    return None


def replay(
    name: options.RuleName,
    target: Target = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show how many rows it would be, and exit.")] = False,
    run_id: options.RunId = None,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Ship rows again that a target refused, once it is mended. Needs no JVM.

    They come once, in a transaction of their own, after all that was committed before. A row that is refused again can
    be replayed again. Rows are left out if their key got a newer row, or if a backfill replaced their interval. These
    no longer count as undelivered then.

    Example: `floodmark undelivered replay departure_delays --target totals`
    """
    from floodmark.cli.shared.rulechange import generated_run_id
    from floodmark.connectors.relay.replaying import RefusedRows
    from floodmark.connectors.relay.shipping import ship_one
    from floodmark.core.relay.redeliveries import redelivering

    rule, sink, place, found = _refused(rules, home.absolute(), name, target)
    due, superseded = found.sifted()
    if superseded and not as_json:
        output.say(f"{name}: {len(superseded)} rows are left out, because something later has decided about them")
    if not dry_run:
        found.supersede(superseded)
    if dry_run or not due:
        facts = {"rule": name, "target": sink.label, "rows": len(due), "left_out": len(superseded), "done": not due}
        said = f"{name}: {len(due)} rows would be sent to target {sink.label} again" if due else _nothing(name, sink)
        return output.print_json(facts) if as_json else output.say(said)
    with held_ledger(place, run_id or generated_run_id()) as ledger:
        due = RefusedRows(sink, place, ledger).due()
        for step in redelivering(ledger.begun, name, found.target, due):
            ledger.live(step)
    shipped = ship_one(rule, sink, place)
    if as_json:
        output.print_json({"rule": name, **shipped.facts(), "left_out": len(superseded), "done": shipped.fault is None})
    elif shipped.fault:
        output.print_error(shipped.text())
    else:
        output.say(shipped.text() or _nothing(name, sink))
    raise typer.Exit(shipped.exit_code)


def _nothing(name: str, sink: Sink) -> str:
    return f"{name}: nothing to replay at target {sink.label}"


def _refused(rules: Path, root: Path, name: str, target: str | None) -> tuple[Rule, Sink, Home, RefusedRows]:
    """The rule, the sink that is meant, the home, and the rows that the target refused. Raises Refused."""
    from floodmark.connectors.relay.relaying import target_named
    from floodmark.connectors.relay.replaying import RefusedRows
    from floodmark.core.rules.kinds import targets
    from floodmark.errors import Refused
    from floodmark.ledger.home import Home

    rule, ledger, _ = begun(rules, root, name)
    found = targets(rule)
    if target is None and len(found) != 1:
        known = ", ".join(sink.label for sink in found) or "none"
        raise Refused(f"rule {name}: expected --target with one of its targets ({known}), found none")
    sink = found[0] if target is None else target_named(rule, target)
    place = Home(root, name)
    return rule, sink, place, RefusedRows(sink, place, ledger)
