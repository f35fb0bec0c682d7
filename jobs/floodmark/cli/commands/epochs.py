"""`floodmark epochs`: the ledger's record of each epoch."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from floodmark.cli.shared import options, output


def epochs(
    name: options.RuleName,
    last: Annotated[int, typer.Option("--last", min=1, help="Number of newest epochs to list.")] = 20,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """List epochs and backfills, newest last: rows read, folded and written, the run, and the duration.

    Example: `floodmark epochs departure_delays --last 5`
    """
    from floodmark.cli.shared.selection import not_run, rule_named
    from floodmark.core.lifecycle.zones import zoned
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader
    from floodmark.views.epochs import COLUMNS, epoch_entries, is_replay

    rule = rule_named(rules, name)
    ledger = LedgerReader.load(Home(home.absolute(), name).ledger)
    if ledger is None or ledger.head is None:
        raise not_run(home.absolute(), name)
    found = epoch_entries(ledger.rows, zoned(rule, ledger.head), last)
    for epoch in found:
        epoch["replay"] = is_replay(ledger.head, epoch)
    if as_json:
        return output.print_json({"rule": name, "epochs": found})
    output.table(COLUMNS, [[_cell(epoch, column) for column in COLUMNS] for epoch in found])


def _cell(epoch: dict[str, Any], column: str) -> Any:
    """One cell; a backfill, which is listed with the epoch before it, shows as its result what it has replaced."""
    from floodmark.views.extents import words

    said = epoch["backfill"]
    if column != "result" or said is None:
        return epoch[column]
    return f"{epoch['result']} {words(said)}".rstrip()
