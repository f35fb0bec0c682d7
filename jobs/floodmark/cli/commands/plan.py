"""`floodmark plan`: what a rule will do, and the delivery guarantee of each sink."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from floodmark.cli.shared import options, output

if TYPE_CHECKING:
    from floodmark.core.rules.sinks.delivery import SinkDelivery
    from floodmark.views.ruleplan import Plan


def plan(
    name: options.RuleName,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Show streams, state, delivery of each sink, the origin of each setting, and what the next run would do. No JVM.

    Example: `floodmark plan departure_delays`
    """
    from floodmark.cli.shared.selection import rule_named
    from floodmark.views.ruleplan import plan_of

    found = plan_of(rule_named(rules, name), rules, home.absolute(), checks=True)
    if as_json:
        output.print_json(found.facts())
    else:
        _report(found)
    raise typer.Exit(0)


def _report(plan: Plan) -> None:
    """Print the plan as text."""
    output.say(f"{plan.rule.rule}: {plan.rule.description}" if plan.rule.description else plan.rule.rule)
    for stream in plan.streams:
        output.say(f"\nstream {stream['name']}: {stream['kind']} {stream['address']}")
        for key, value in stream.items():
            if key not in ("name", "kind", "address") and (value or key not in ("rule", "changes", "landing", "crash")):
                output.say(f"  {key:<11} {value or '-'}")
    for lookup in plan.lookups:
        output.say(f"\nlookup {lookup['name']}: {lookup['kind']} {lookup['address']}")
        output.say(f"  rows        {lookup['rows']}")
    output.say("\nstate")
    for line in plan.state:
        output.say(f"  {line}")
    output.say("\nerrors")
    for line in plan.errors:
        output.say(f"  {line}")
    if plan.expected:
        output.say("\nexpected")
    for line in plan.expected:
        output.say(f"  {line}")
    output.say("\ndelivery")
    for sink, how in zip(plan.delivery, plan.sinks, strict=True):
        _report_delivery(sink, [f"rows {how['rows']}", *how["takes"], *_schema(how)])
    output.say()
    output.table(("setting", "value", "from"), [(s.name, _shown(s.value), s.place) for s in plan.settings])
    for name, origin in plan.environment.items():
        output.say(f"${{{name}}}: {origin}")
    for line in plan.not_compared:
        output.say(line)
    output.say(f"\nnext run: {plan.next_run}")


def _schema(how: dict[str, Any]) -> list[str]:
    """On one line, so that it can be copied to a file."""
    found = how.get("value_schema")
    return [] if found is None else [f"schema of its values: {json.dumps(found)}"]


def _report_delivery(sink: SinkDelivery, how: list[str]) -> None:
    output.say(f"  sink {sink.label}: {sink.delivery}")
    output.say(f"    {sink.sink}")
    for line in how:
        output.say(f"    {line}")
    output.say(
        f"    source {sink.source}, rule {sink.rule}, sink {sink.sink_capability}; the weakest is the {sink.weakest}"
    )
    if sink.fix:
        output.say(f"    to improve: {sink.fix}")


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}={one}" for key, one in value.items()) or "none"
    return "none" if value is None else str(value)
