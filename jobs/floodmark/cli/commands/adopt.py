"""`floodmark adopt`: let a rule take over an existing table and keep its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output, rulechange

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule


def adopt(
    name: options.RuleName,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="Address of one of the rule's sinks.", show_default=False)
    ],
    *,
    change: rulechange.Change,
) -> None:
    """Let a rule write to a table that already holds rows. Such a sink is refused otherwise.

    The existing rows stay and never belong to the rule. A reset, backfill or drop leaves them alone, or is refused if
    it can't. Table and ledger record the version from which the table belongs to the rule.

    Example: `floodmark adopt departure_delays lake/departure_delays --dry-run`
    """
    from floodmark.cli.shared.selection import rule_named
    from floodmark.connectors.delta.adopting import adoptable, sink_at
    from floodmark.connectors.delta.sink import DeltaSink
    from floodmark.connectors.preflight import check_distinct_tables, check_outside_home
    from floodmark.core.lifecycle.life import check_unsealed
    from floodmark.core.text.addresses import location
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    rule, root, place = rule_named(change.rules, name), change.root, location(table)
    DeltaSink(place).check_partitions(sink_at(rule, place).partition_by)
    check_outside_home(rule, root)
    check_distinct_tables(rule)
    ledger = LedgerReader.load(Home(root, name).ledger)
    check_unsealed(ledger.head if ledger else None, name)
    found = adoptable(place, ledger.id if ledger else None)
    begun = ledger is not None and ledger.head is not None and ledger.head.epoch > 0
    whole = [] if begun else [stream for stream, one in rule.streams.items() if one.start == "earliest"]
    facts = {"rule": name, "done": not change.dry_run, "table": place, "changed": found is not None, "version": None}
    facts["earliest"] = whole if found is not None else []
    if found is None:
        return _report(facts, f"{name}: nothing to do: {place} is empty or already belongs to the rule", change.as_json)
    facts["version"] = found.version()
    if not change.as_json:
        output.say(
            f"{name}: adopts {place}; its rows up to version {found.version()} stay and do not belong to the rule"
        )
        if whole:
            output.say(
                f"{name}: the first run reads all rows of {', '.join(whole)} (`start: earliest`), and appends their "
                "results. If the table has some of these results already, set a later `start` in the rule first"
            )
    if change.dry_run:
        return output.print_json(facts) if change.as_json else None
    rulechange.confirm(change.yes, "adopt asks for confirmation before it takes over a table")
    facts["version"] = upto = _adopt(rule, root, place, change.run)
    since = "" if upto is None else f" from version {upto + 1} on"
    return _report(facts, f"{name}: {place} belongs to the rule{since}", change.as_json)


def _adopt(rule: Rule, root: Path, place: str, run: str) -> int | None:
    """Adopt the table while holding the rule; create the rule's ledger first if needed, as the table names its id.

    Returns the last version whose rows aren't the rule's; None if the table no longer needs adoption.
    """
    from floodmark.connectors.delta.adopting import adopt, adoptable
    from floodmark.core.lifecycle.life import check_living, check_unsealed
    from floodmark.ledger.home import Home, check_home

    check_home(root, rule.qos)
    mine = Home(root, rule.rule)
    mine.path.mkdir(parents=True, exist_ok=True)
    with rulechange.held_ledger(mine, run) as ledger:
        check_living(ledger.head, rule.rule)
        check_unsealed(ledger.head, rule.rule)
        table = adoptable(place, ledger.id)
        return None if table is None else adopt(table, rule.rule, ledger.id)


def _report(facts: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        return output.print_json(facts)
    return output.say(text)
