"""`floodmark drop`: remove the tables that a retired rule owns, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output, rulechange
from floodmark.core.text.tablenames import about_named, table_label
from floodmark.errors import Refused

if TYPE_CHECKING:
    from floodmark.ledger.dropping import DropPlan
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

NOT_THE_HOME = "a link led there, and it is not the home that was dropped. Only the link was removed"
NO_TABLE = "its next run finds no table there, and stops"


def drop(
    name: options.RuleName,
    state: Annotated[bool, typer.Option("--state", help="Remove the state tables of all generations.")] = False,
    sinks: Annotated[bool, typer.Option("--sinks", help="Remove the sinks that the rule created.")] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Remove all data of the rule: these, late and dead rows, and finally the ledger."),
    ] = False,
    leave_others: Annotated[
        bool,
        typer.Option(
            "--leave-others",
            help="Skip sinks that the rule doesn't own, slots that can't be dropped, and rows not shipped yet, instead "
            "of refusing.",
        ),
    ] = False,
    *,
    change: rulechange.Change,
) -> None:
    """Remove tables of a retired rule permanently. Tables that the rule doesn't own are refused, with the reason.

    The rule doesn't own adopted sinks, sinks that others write, or a different table that now lies at a sink's address.
    If the command is killed, run it again to continue. No rule file is needed.

    Example: `floodmark drop departure_delays --state`, `floodmark drop departure_delays --all --dry-run`
    """
    from floodmark.connectors.ports.releasing import kept_elsewhere, release
    from floodmark.core.lifecycle.life import check_droppable
    from floodmark.ledger import dropping, renaming
    from floodmark.ledger.home import Home

    root, parts = change.root, _parts(state, sinks, everything)
    place = Home(root, name)
    if everything and renaming.renamed_to(place) is not None:
        return _free(place, change.yes, change.dry_run, change.as_json)
    if everything and not place.path.exists() and dropping.leftover_trash(place):
        return _clear(place, change.yes, change.dry_run, change.as_json)
    _, reader, head = rulechange.begun_home(root, name)
    check_droppable(head, name)
    unshipped = rulechange.left_behind(head, place, reader) if everything else {}
    if unshipped and not leave_others:
        told = "; ".join(unshipped.values())
        raise Refused(f"rule {name}: not all of its rows are shipped. {told}. With --leave-others, they are removed")
    others = _others(change.rules, name)
    found = _drop_plan(reader, place, parts, others, leave_others)
    readers = rulechange.downstream([one.address for one in found.tables], change.rules, name)
    facts = {
        "rule": name,
        "done": not change.dry_run,
        "tables": [{"table": one.name, "address": one.address} for one in found.tables],
        "left": dict(found.skipped),
        "home": str(place.path) if everything else None,
        "undelivered": unshipped,
        "downstream": readers.facts(),
    }
    if not change.as_json:
        if head.dropping is not None:
            output.say(
                f"{name}: an unfinished drop of {', '.join(map(table_label, head.dropping.tables))} is finished first"
            )
        _announce(place, found, kept_elsewhere(head.rule, place) if everything else None)
        for said in unshipped.values():
            output.say(f"  never shipped: {said}")
        readers.describe(NO_TABLE, NO_TABLE, "it gets no new rows")
    if change.dry_run:
        return output.print_json(facts) if change.as_json else None
    rulechange.confirm(change.yes, "drop asks for confirmation before it removes tables")
    with rulechange.held_ledger(place, change.run, everything) as ledger:
        check_droppable(ledger.begun, name)  # it may have been brought back since
        kept = dropping.finish(ledger, place, others)
        wanted = _drop_plan(ledger, place, parts, others, leave_others)
        dropping.check(ledger, place, wanted, everything)  # before sources let go of what cannot be made again
        left = release(head.rule, place, leave_others, wanted.is_older) if everything else {}
        kept |= dropping.drop(ledger, place, wanted, others, everything)
    facts["left"] = dict(found.skipped) | kept | {f"stream/{one}": why for one, why in left.items()}
    if change.as_json:
        return output.print_json(facts)
    for why in (*left.values(), *(f"not removed: {about_named(one, why)}" for one, why in kept.items())):
        output.say(f"{name}: {why}")
    return output.say(
        _report(name, everything, change.rules, bool(facts["left"]))
        if found.tables or everything
        else f"{name}: nothing was dropped"
    )


def _parts(state: bool, sinks: bool, everything: bool) -> list[str]:
    given = [option for option, asked in (("--state", state), ("--sinks", sinks), ("--all", everything)) if asked]
    if everything == (state or sinks):
        found = f"{' and '.join(given)}: --all includes the others" if given else "none: choose what to remove"
        raise Refused(f"expected --state, --sinks or both, or only --all, found {found}")
    return [part for part, asked in (("state", state), ("sink", sinks or everything)) if asked]


def _others(rules: Path, name: str) -> dict[str, str]:
    from floodmark.views.rules.downstream import writers

    return writers(rulechange.good_rules(rules), name)


def _drop_plan(
    ledger: LedgerReader, place: Home, parts: list[str], others: dict[str, str], leave_others: bool
) -> DropPlan:
    from floodmark.ledger.dropping import plan_drop, refuse_skipped

    found = plan_drop(ledger, place, parts, others)
    if not leave_others:
        refuse_skipped(found, place.rule)
    return found


def _announce(place: Home, found: DropPlan, elsewhere: list[str] | None) -> None:
    """`elsewhere`: what the rule's sources keep; None if the home stays."""
    output.say(f"{place.rule}: drop permanently removes:")
    for one in found.tables:
        output.say(f"  {table_label(one.name)}: {one.address}")
    if elsewhere is not None:
        landed = ", landed rows" if (place.path / "landing").exists() else ""
        output.say(f"  home: {place.path}, with state{landed}, late and dead rows, and the ledger")
        for kept in elsewhere:
            output.say(f"  of a source: {kept}")
    elif not found.tables:
        output.say("  nothing: no such table exists")
    for name, why in found.skipped.items():
        output.say(f"  not removed: {about_named(name, why)}")


def _report(name: str, everything: bool, rules: Path, is_left: bool) -> str:
    if not everything:
        return f"{name}: dropped. If you bring the rule back, it has to start over: `floodmark reset {name}`"
    file = next((one for one in (rules / f"{name}.yaml", rules / f"{name}.yml") if one.exists()), None)
    left = f". Its rule file still exists, and a run of it would start over: {file}" if file else ""
    return f"{name}: {_rest(is_left)}{left}"


def _rest(is_left: bool) -> str:
    return "nothing is left of it but what is named above as not removed" if is_left else "nothing is left of it"


def _free(place: Home, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Forget that a rule was renamed from this name, so that a new rule can have it."""
    from floodmark.ledger.renaming import renamed_to

    facts: dict[str, Any] = {"rule": place.rule, "done": not dry_run, "tables": [], "left": {}, "home": None,
                             "undelivered": {}, "downstream": []}  # fmt: skip
    if not as_json:
        now = renamed_to(place)
        output.say(f"{place.rule}: it was renamed to {now}, which stays as it is; a new rule can have this name then")
    if not dry_run:
        rulechange.confirm(yes, "drop asks for confirmation before it frees a name")
        place.renamed.unlink(missing_ok=True)
    if as_json:
        return output.print_json(facts)
    return None if dry_run else output.say(f"{place.rule}: the name is free")


def _clear(place: Home, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Finish a drop that was killed while it removed the home."""
    from floodmark.ledger.dropping import leftover_trash, remove_home

    left = leftover_trash(place)
    facts: dict[str, Any] = {"rule": place.rule, "done": not dry_run, "tables": [], "left": {}, "home": str(place.path),
                             "undelivered": {}, "downstream": []}  # fmt: skip
    if not as_json:
        output.say(
            f"{place.rule}: an earlier drop did not finish, and {', '.join(map(str, left))} is still to be removed"
        )
    if not dry_run:
        rulechange.confirm(yes, "drop asks for confirmation before it removes tables")
        stay = [str(found) for found in map(remove_home, left) if found is not None]
        facts["left"] = dict.fromkeys(stay, NOT_THE_HOME)
    if as_json:
        return output.print_json(facts)
    for one, why in facts["left"].items():
        output.say(f"{place.rule}: not removed: {one}: {why}")
    return output.say(f"{place.rule}: {_rest(bool(facts['left']))}")
