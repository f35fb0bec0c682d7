"""`floodmark state`, `late` and `dead list`: show the rows of a rule's own tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.ledger import LedgerReader

Limit = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of rows to print.")]
Keys = Annotated[
    list[str] | None, typer.Option("--key", help="COLUMN=VALUE: only rows with this value, as text; may be repeated.")
]
Epoch = Annotated[
    int | None,
    typer.Option("--epoch", min=0, help="As of this epoch of the newest generation. Default: the newest epoch."),
]
Rows = list[dict[str, Any]]


def state(
    name: options.RuleName,
    limit: Limit = 20,
    key: Keys = None,
    epoch: Epoch = None,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Show the state of a rule: rows that open windows need, oldest epoch first; or values and totals by key.

    Example: `floodmark state departure_delays --key origin=SFO --limit 5`; of an earlier epoch: `--epoch 41`
    """
    rule, ledger, head = begun(rules, home.absolute(), name)
    if rule.process is None and not rule.query.stateful:
        return _no_state(rule, head.epoch if epoch is None else epoch, as_json)
    from floodmark.cli.shared.paststate import state_at
    from floodmark.ledger.home import Home
    from floodmark.views.contents.statetables import first_rows, state_of

    at, root = head.epoch if epoch is None else epoch, home.absolute()
    now = state_of(rule, head, root) if at == head.epoch else state_at(ledger, Home(root, name), at)
    found = {table: first_rows(one, key or [], limit) for table, one in now.items()}
    if as_json:
        streams = {table: {"rows": count, "shown": rows} for table, (count, rows, _) in found.items()}
        return output.print_json({"rule": name, "epoch": at, "streams": streams})
    for count, rows, what in found.values():
        _print(rows, f"{name}: {count} {what} at epoch {at}")
    return None


def late(
    name: options.RuleName,
    limit: Limit = 20,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Show the late rows, which arrived below the watermark, newest epoch first.

    `_restated` is the backfill that has read the row since; `in part` means: for some of its windows.

    Example: `floodmark late departure_delays`
    """
    _list_quarantined("late", name, limit, rules, home.absolute(), as_json)


def dead(
    name: options.RuleName,
    limit: Limit = 20,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Show the dead rows, which could not be used, each with its reason, newest epoch first.

    `_replayed` is the epoch that read the row again; with the replay's condition if only Spark can evaluate it.

    Example: `floodmark dead list departure_delays`
    """
    _list_quarantined("dead", name, limit, rules, home.absolute(), as_json)


def _list_quarantined(kind: str, name: str, limit: int, folder: Path, root: Path, as_json: bool) -> None:
    from floodmark.views.contents.quarantine import quarantined

    rule, _, head = begun(folder, root, name)
    count, rows = quarantined(kind, name, head, root, limit)
    if as_json:
        return output.print_json({"rule": name, "epoch": head.epoch, "rows": count, "shown": rows})
    dropped = "; with `late: drop`, they are counted but not kept" if (kind, rule.late) == ("late", "drop") else ""
    return _print(rows, f"{name}: {count} {kind} rows at epoch {head.epoch}{dropped}")


def begun(folder: Path, root: Path, name: str) -> tuple[Rule, LedgerReader, Head]:
    """A rule, its ledger and its head. Raises Refused if the rule has not run yet."""
    from floodmark.cli.shared.selection import not_run, rule_named
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    rule = rule_named(folder, name)
    ledger = LedgerReader.load(Home(root, name).ledger)
    if ledger is None or ledger.head is None:
        raise not_run(root, name)
    return rule, ledger, ledger.head


def _no_state(rule: Rule, epoch: int, as_json: bool) -> None:
    if as_json:
        return output.print_json({"rule": rule.rule, "epoch": epoch, "streams": {}})
    output.say(f"{rule.rule}: its SQL is stateless, so there is no state")


def _print(rows: Rows, title: str) -> None:
    output.say(title)
    columns = [name for name in (rows[0] if rows else {}) if name != "_source"]
    if rows:
        output.table(columns, [[row[name] for name in columns] for row in rows])
