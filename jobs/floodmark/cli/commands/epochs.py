"""`floodmark epochs`: what the ledger says, epoch by epoch."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from floodmark.cli.shared import options, output


def epochs(
    name: options.RuleName,
    last: Annotated[int, typer.Option("--last", min=1, help="So many of the newest.")] = 20,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """What each epoch, and each backfill, read, folded and wrote, which run did it and how long it took; newest last.

    Example: `floodmark epochs departure_delays --last 5`
    """
    from floodmark.cli.shared.selection import not_run, one
    from floodmark.core.lifecycle.zones import zoned
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader
    from floodmark.views.epochs import COLUMNS, is_replay, told

    rule = one(rules, name)
    ledger = LedgerReader.load(Home(home.absolute(), name).ledger)
    if ledger is None or ledger.head is None:
        raise not_run(home.absolute(), name)
    found = told(ledger.rows, zoned(rule, ledger.head), last)
    for epoch in found:
        epoch["replay"] = is_replay(ledger.head, epoch)
    if as_json:
        return output.document({"rule": name, "epochs": found})
    output.table(COLUMNS, [[_cell(epoch, column) for column in COLUMNS] for epoch in found])


def _cell(epoch: dict[str, Any], column: str) -> Any:
    """A backfill stands in the table beside the epoch after which it came."""
    said = epoch["backfill"]
    if column != "result" or said is None:
        return epoch[column]
    return f"{epoch['result']} {said['from']} to {said['to']}"
