"""`floodmark maintain`: compact a rule's tables, and remove old files and log entries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output, rulechange
from floodmark.core.text.tablenames import about_named, table_label
from floodmark.views.formats import size

if TYPE_CHECKING:
    from floodmark.ledger.landings import Cut
    from floodmark.ledger.maintenance import Maintenance, TableDone, TableWork


def maintain(
    name: options.RuleName,
    due: Annotated[
        bool, typer.Option("--due", help="Only if `cleanup: {every: ...}` has passed since the last maintenance.")
    ] = False,
    *,
    change: rulechange.Change,
) -> None:
    """Join small files of a rule's tables, remove files that no version needs, and cut the logs of tables and ledger.

    Files that recovery, open epochs, `state --epoch` or readers of the sinks need stay. Tables that the rule doesn't
    own are left alone. If the command is killed, run it again to continue. No rule file is needed.

    Example: `floodmark maintain departure_delays --dry-run`
    """
    from floodmark.core.lifecycle.cleanup import is_due
    from floodmark.views.needs import maintenance_of, text_of

    place, reader, head = rulechange.begun_home(change.root, name)
    rules = rulechange.good_rules(change.rules)
    if due and not is_due(head.maintained, text_of(name, head, rules).cleanup, datetime.now(UTC)):
        return _report(
            _facts(name, [], {}, done=False), f"{name}: not due, last maintained {head.maintained}", change.as_json
        )
    upkeep = maintenance_of(name, head, rules, change.root)
    found, left = upkeep.preview(reader, place)
    if not change.as_json:
        _announce(name, found, left, upkeep)
    if change.dry_run:
        return output.print_json(_facts(name, found, left, done=False)) if change.as_json else None
    rulechange.confirm(change.yes, "maintain asks for confirmation before it removes files")
    with rulechange.held_ledger(place, change.run) as ledger:
        done = upkeep.maintain(ledger, place, lambda text: output.say(f"  {text}", err=change.as_json))
    facts = _facts(name, found, left, done=True)
    return _report(facts | {"tables": _done(found, done)}, f"{name}: maintained{_in_all(done)}", change.as_json)


def _announce(name: str, found: list[TableWork], left: dict[str, str], upkeep: Maintenance) -> None:
    output.say(f"{name}: maintenance of {len(found)} tables and the ledger")
    for one in found:
        what = [f"{one.small} small files to join"] if one.small > 1 else []
        what += [f"{len(one.files)} files to remove ({_bytes(one)})"] if one.files else []
        what += [_about_cut(one.cut)] if one.cut else []
        what += [f"{one.entries} log entries to cut"] if one.entries else []
        what += [f"files are not joined, because they have {one.apart}: run Spark's OPTIMIZE"] if one.apart else []
        what += [f"files stay, because it uses {one.beyond}: run Spark's OPTIMIZE and VACUUM"] if one.beyond else []
        output.say(f"  {table_label(one.name)}: {', '.join(what) or 'nothing to do'}")
        for who in upkeep.need(one.address).readers:
            output.say(f"    kept: {who}")
    for table, why in left.items():
        output.say(f"  not maintained: {about_named(table, why)}")


def _about_cut(cut: Cut) -> str:
    from floodmark.ledger.landings import OUTBOX

    if cut.table.role == OUTBOX:
        return f"{cut.chunks} portions to remove, which were shipped"
    return f"{cut.chunks} landed chunks to remove, which are folded"


def _bytes(one: TableWork) -> str:
    return size(sum(file.stat().st_size for file in one.files if file.exists()))


def _in_all(done: dict[str, TableDone]) -> str:
    compacted, removed = (sum(getattr(one.tended, what) for one in done.values()) for what in ("compacted", "removed"))
    return f", {compacted} small files joined, {removed} files removed"


def _facts(name: str, found: list[TableWork], left: dict[str, str], done: bool) -> dict[str, Any]:
    return {
        "rule": name,
        "done": done,
        "tables": {
            one.name: _table(one.small, len(one.files), one.entries, one.log_from, one.beyond or one.apart)
            for one in found
        },
        "left": left,
    }


def _done(found: list[TableWork], done: dict[str, TableDone]) -> dict[str, Any]:
    beyond = {one.name: one.beyond or one.apart for one in found}
    return {
        name: _table(one.tended.compacted, one.tended.removed, one.cut, one.tended.log_from, beyond.get(name, ""))
        for name, one in done.items()
    }


def _table(joined: int, removed: int, cut: int, log_from: int, beyond: str) -> dict[str, Any]:
    counts = {"joined": joined, "removed": removed, "entries_cut": cut, "log_from": log_from}
    return {**counts, "not_by_us": beyond or None}


def _report(facts: dict[str, Any], text: str, as_json: bool) -> None:
    return output.print_json(facts) if as_json else output.say(text)
