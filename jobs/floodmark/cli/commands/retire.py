"""`floodmark retire`: stop a rule and keep its data, or bring it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output, rulechange
from floodmark.core.protocol.crashpoints import reach

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.protocol.records.rows import Life


def retire(
    name: options.RuleName,
    undo: Annotated[
        bool, typer.Option("--undo", help="Bring a retired rule back: its runs continue where they stopped.")
    ] = False,
    as_is: Annotated[
        bool,
        typer.Option("--as-is", help="Retire even if an epoch is open and the sinks may have some of its results."),
    ] = False,
    *,
    change: rulechange.Change,
) -> None:
    """Stop a rule: nobody can run it any more. Its ledger, state and sinks stay unchanged.

    The ledger records it, so it applies to Airflow, to the command line and to copies of the home. No rule file is
    needed.

    Example: `floodmark retire departure_delays`; to bring it back: `floodmark retire departure_delays --undo`
    """
    from floodmark.connectors.ports.releasing import kept_elsewhere

    place, reader, head = rulechange.begun_home(change.root, name)
    due = _pending_row(head, name, undo, as_is)
    unshipped = {} if undo else rulechange.left_behind(head, place, reader)
    readers = rulechange.downstream(rulechange.sinks_of(head), change.rules, name)
    facts = {
        "rule": name,
        "done": not change.dry_run,
        "changed": due is not None,
        "retired": not undo,
        "generation": head.generation,
        "epoch": head.epoch,
        "undelivered": unshipped,
        "downstream": readers.facts(),
    }
    if due is None:
        return _report(
            facts, f"{name} is {'not retired' if undo else f'already retired, {head.retired}'}", change.as_json
        )
    if not change.as_json:
        output.say(_announced(name, head, undo))
        for one in [] if undo else kept_elsewhere(head.rule, place):
            output.say(f"{name}: {one} stays. Bring the rule back in time, or drop it with --all")
        for said in unshipped.values():
            output.say(f"{name}: {said}")
        readers.describe(*["it gets new rows again" if undo else "it gets no new rows"] * 3)
    if change.dry_run:
        return output.print_json(facts) if change.as_json else None
    rulechange.confirm(
        change.yes, f"retire asks for confirmation before it {'brings a rule back' if undo else 'stops a rule'}"
    )
    with rulechange.held_ledger(place, change.run) as ledger:
        due = _pending_row(ledger.begun, name, undo, as_is)
        if due is not None:
            reach(name, "retire.before")
            ledger.live(due)
            reach(name, "retire.after")
    done = "is back: its next run continues" if undo else f"is retired; `floodmark retire {name} --undo` brings it back"
    return _report(facts, f"{name} {done}", change.as_json)


def _pending_row(head: Head, name: str, undo: bool, as_is: bool) -> Life | None:
    from floodmark.core.lifecycle.life import retiring, returning

    return returning(head, name) if undo else retiring(head, name, as_is)


def _announced(name: str, head: Head, undo: bool) -> str:
    from floodmark.core.lifecycle.life import describe_undone

    found = describe_undone(head)
    left = f"; {found}, and stays that way" if found else ""
    if undo:
        return f"{name}: its runs continue after epoch {head.epoch} of generation {head.generation}"
    return (
        f"{name}: it no longer runs after epoch {head.epoch} of generation {head.generation}{left}; all its data stays"
    )


def _report(facts: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        return output.print_json(facts)
    return output.say(text)
