"""`floodmark rename`: give a rule another name, under which it continues exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import output, rulechange
from floodmark.cli.shared.completing import rule_names
from floodmark.errors import Refused

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.ledger.home import Home

NewName = Annotated[str, typer.Argument(metavar="NEW", help="New name of the rule.", show_default=False)]


def rename(
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD", help="Name of a rule that has run.", show_default=False, autocompletion=rule_names
        ),
    ],
    new: NewName,
    *,
    change: rulechange.Change,
) -> None:
    """Give a rule another name. Its home moves; its sinks, state and progress stay the same.

    Rename the rule file, and `rule` in it, yourself, before or after. In between, the rule doesn't run under either
    name. If the command is killed, run it again to continue. An open epoch is finished under the new name.

    Example: `floodmark rename departure_delays delays --dry-run`
    """
    from floodmark.ledger import renaming
    from floodmark.ledger.home import Home

    root = change.root
    place, target = Home(root, old), Home(root, new)
    facts: dict[str, Any] = {"rule": new, "was": old, "done": not change.dry_run, "home": str(target.path), "next": []}
    if old != new and renaming.is_done(root, old, new):
        return _report(facts, f"{old} is already named {new}", _remaining_edits(change.rules, old, new), change.as_json)
    _, _, head = rulechange.begun_home(root, old)
    _check(head, place, target, change.rules)
    if not change.as_json and old != new:
        output.say(
            f"{old}: its home {place.path} moves to {target.path}; the rule is at epoch {head.epoch} and continues"
        )
    if change.dry_run:
        return _report(facts, "", _remaining_edits(change.rules, old, new), change.as_json)
    rulechange.confirm(change.yes, "rename asks for confirmation before it moves a rule's home")
    with rulechange.held_ledger(place, change.run, whole=True) as ledger:
        renaming.rename(ledger, place, target)
    done = f"{old} is now named {new}" if old != new else f"{old} keeps its name"
    return _report(facts, done, _remaining_edits(change.rules, old, new), change.as_json)


def _check(head: Head, place: Home, target: Home, rules: Path) -> None:
    """Refuse a rename that could not be finished, or that the rule file of the new name conflicts with."""
    from floodmark.connectors.places import check_same_sinks
    from floodmark.core.lifecycle.life import renaming
    from floodmark.ledger.renaming import check_free

    if place != target:
        _check_name(target.rule)
        check_free(target)
    renaming(head, place.rule, target.rule)
    named = next((rule for rule in rulechange.good_rules(rules) if rule.rule == target.rule), None)
    if named is not None:
        check_same_sinks(head, named)


def _check_name(name: str) -> None:
    from floodmark.core.rules.file.fields import rule_name

    try:
        rule_name(name)
    except ValueError as fault:
        raise Refused(f"{fault}, found {name!r}: no rule file can have this name") from None


def _remaining_edits(rules: Path, old: str, new: str) -> list[str]:
    """The changes of rule files that the user has to make."""
    if old == new:
        return []
    file = next((one for one in (rules / f"{old}.yaml", rules / f"{old}.yml") if one.exists()), None)
    own = [f"rename {file} to {file.with_name(new + file.suffix)} and write `rule: {new}` in it"] if file else []
    return own + [
        f"write `rule: {new}` for stream {name} in the file of rule {rule.rule}, which reads {old} by name"
        for rule in rulechange.good_rules(rules)
        for name, stream in rule.streams.items()
        if stream.rule == old
    ]


def _report(facts: dict[str, Any], text: str, left: list[str], as_json: bool) -> None:
    if as_json:
        return output.print_json(facts | {"next": left})
    if text:
        output.say(text)
    for one in left:
        output.say(f"  to do: {one}")
    if left:
        output.say(f"  until then the rule doesn't run. Then its DAG in Airflow is rule.{facts['rule']}")
    return None
