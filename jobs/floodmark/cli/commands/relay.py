"""`floodmark relay`: ship what a rule has committed to its targets."""

from __future__ import annotations

from typing import Annotated

import typer

from floodmark.cli.shared import options, output
from floodmark.cli.shared.completing import rule_names
from floodmark.errors import Refused, worst


def relay(
    name: Annotated[
        str, typer.Argument(metavar="RULE", help="Name of a rule.", show_default=False, autocompletion=rule_names)
    ],
    target: Annotated[
        str | None, typer.Option("--target", help="Only this target, by the name of its sink.", metavar="NAME")
    ] = None,
    resend: Annotated[
        bool,
        typer.Option("--resend", help="Accept a target that was restored from a copy, and ship again what it lost."),
    ] = False,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Ship what a rule has committed from its outboxes to its targets, in order. Needs no JVM.

    A run ships by itself. Use this after a target was down, or as a task of its own. A target gets each epoch once: its
    position moves in the same transaction as its rows. You can kill a relay at any time and start it again.

    Example: `floodmark relay departure_delays --target totals`
    """
    from floodmark.cli.shared.selection import rule_named
    from floodmark.connectors.relay.backlogs import undelivered_of_removed
    from floodmark.connectors.relay.relaying import target_named
    from floodmark.connectors.relay.shipping import ship_one
    from floodmark.core.rules.kinds import targets
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    rule, place = rule_named(rules, name), Home(home.absolute(), name)
    removed = undelivered_of_removed(rule, place, LedgerReader.load(place.ledger))
    wanted = targets(rule) if target is None else [target_named(rule, target)]
    if not wanted:
        said = "".join(f"\n{one.removed(name)}" for one in removed)
        raise Refused(f"rule {name}: expected a sink that is a target, such as `postgres: ...`, found none{said}")
    found = [ship_one(rule, sink, place, resend) for sink in wanted]
    code = worst([one.exit_code for one in found])
    if as_json:
        output.print_json(
            {
                "rule": name,
                "exit_code": code,
                "targets": [one.facts() for one in found],
                "removed_targets": [one.facts() for one in removed],
            }
        )
    for one in () if as_json else found:
        said = one.text() or f"target {one.target}: nothing new"
        output.print_error(said) if one.fault else output.say(said)
    for left in () if as_json else removed:
        output.say(left.removed(name), err=True)
    raise typer.Exit(code)
