"""`floodmark sql`: query a rule's sinks, all as of one epoch."""

from __future__ import annotations

import csv as files
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output
from floodmark.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.reading import Reading

SHOWN = 100  # rows of a table for people


def sql(
    name: options.RuleName,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUERY]", help="SELECT ... over the sinks. Default: list the sinks.", show_default=False
        ),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option("--epoch", min=0, help="As of this epoch of the newest generation. Default: the newest epoch."),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV instead.")] = False,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Query the rule's sinks as of the last committed epoch. Rows of an epoch in progress are not visible.

    A sink's table name is its `name`, or else the last part of its address. The SQL is DataFusion's. Read-only, no JVM.

    Example: `floodmark sql departure_delays "SELECT origin, max(mean_delay) AS worst FROM departure_delays GROUP BY 1"`
    """
    if csv and as_json:
        raise Refused("expected --csv or --json, found both")
    found = _read(name, rules, home.absolute(), epoch)
    if query is None:
        return _list(found, as_json, csv)
    from floodmark.reading import rows_of
    from floodmark.views.contents.tablerows import plain

    answer = found.sql(query)
    rows = [[plain(value) for value in row] for row in rows_of(answer)]
    if as_json:
        columns = [{"name": field.name, "type": str(field.type)} for field in answer.schema]
        return output.print_json({**_facts(found), "columns": columns, "rows": rows})
    if csv:
        return _print_csv(answer.column_names, rows)
    return _print(found, answer.column_names, rows)


def _read(name: str, rules: Path, home: Path, epoch: int | None) -> Reading:
    """Read the sinks as the home records them. Without a home, check the rule file first: its errors say more."""
    from floodmark.cli.shared.selection import rule_named
    from floodmark.ledger.home import Home
    from floodmark.reading import read

    if not Home(home, name).path.exists():
        rule_named(rules, name)
    return read(name, home, epoch)


def _facts(found: Reading) -> dict[str, Any]:
    tables = [
        {"name": sink.name, "address": sink.address, "version": sink.version, "columns": sink.columns} for sink in found
    ]
    return {"rule": found.rule, "generation": found.generation, "epoch": found.epoch, "tables": tables}


def _list(found: Reading, as_json: bool, csv: bool) -> None:
    facts = _facts(found)
    names = ["name", "version", "columns", "address"]
    rows = [[one["name"], one["version"], ", ".join(one["columns"]), one["address"]] for one in facts["tables"]]
    if as_json:
        output.print_json(facts)
    elif csv:
        _print_csv(names, rows)
    else:
        _print(found, names, rows)


def _print(found: Reading, names: list[str], rows: list[list[Any]]) -> None:
    output.say(f"{found.rule} at epoch {found.epoch}: {len(rows)} row{'' if len(rows) == 1 else 's'}")
    output.table(names, rows[:SHOWN])
    if len(rows) > SHOWN:
        output.say(f"… and {len(rows) - SHOWN} more: add LIMIT, or print all with --csv or --json")


def _print_csv(names: list[str], rows: list[list[Any]]) -> None:
    writer = files.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
