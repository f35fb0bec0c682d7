"""`floodmark plan`: what a rule will do and what its sinks really get."""

from __future__ import annotations

import typer

from floodmark.cli import options, output


def plan(
    name: options.RuleName,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Streams, state, delivery of each sink, where each setting comes from, and what the next run would do. No JVM.

    Example: `floodmark plan departure_delays`
    """
    from floodmark.cli.planned import planned
    from floodmark.cli.selection import one

    found = planned(one(rules, name), rules, home.absolute())
    if as_json:
        output.document(found.facts())
    else:
        found.tell()
    raise typer.Exit(0)
