"""`floodmark status` and `list`: the status of rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output
from floodmark.core.text.tablenames import last_part
from floodmark.errors import worst

if TYPE_CHECKING:
    from floodmark.cli.shared.selection import Rules


def status(
    names: options.RuleNames = None,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Show the status of rules: epoch, watermark, lag, state, open epochs and windows, lock holder, sink deliveries.

    Example: `floodmark status`, `floodmark status departure_delays --json`
    """
    from floodmark.cli.shared.selection import load_folder
    from floodmark.views.status.rulestatus import RuleStatus, rule_status

    known = load_folder(rules)
    wanted = list(dict.fromkeys(names)) if names else known.names()
    found = [
        rule_status(known.good[name], home.absolute())
        if name in known.good
        else RuleStatus(name, fault=known.fault(name))
        for name in wanted
    ]
    # A bad file is an error only if its rule was named; an unreadable ledger always is.
    told = [one for one in found if one.fault and (names or one.rule in known.good)]
    code = worst([one.fault.exit_code for one in told if one.fault])
    if as_json:
        output.print_json({"exit_code": code, "rules": {one.rule: one.facts() for one in found}})
    else:
        for one in found:
            output.say(one.text(), err=one in told)
    raise typer.Exit(code)


def list_rules(
    graph: Annotated[bool, typer.Option("--graph", help="Show which rule feeds which, instead.")] = False,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """List the rules of the folder: group, schedule, qos and sinks. Also lists rules that have data but no rule file.

    Example: `floodmark list`, `floodmark list --graph`
    """
    from floodmark.cli.shared.selection import load_folder
    from floodmark.views.homes import home_status, homes

    known = load_folder(rules)
    if graph:
        return _graph(known, as_json)
    found = [_listed(known, name) for name in known.names()]
    left = [home_status(home.absolute(), name) for name in homes(home.absolute()) if name not in known.names()]
    if as_json:
        facts = [one.facts() for one in left]
        return output.print_json({"folder": str(known.folder), "rules": found, "homes_without_rule": facts})
    columns = ("rule", "group", "schedule", "qos", "sinks", "description")
    output.table(columns, [[_shown(entry, column) for column in columns] for entry in found])
    for one in left:
        output.say(f"{one.rule}: {one.text()}")
    return None


def _graph(known: Rules, as_json: bool) -> None:
    """Print the graph of the valid rules, and why the other files are missing."""
    from floodmark.views.rules.graph import graph

    found, bad = graph(known.good.values()), sorted(known.bad.items())
    if as_json:
        errors = {file: str(fault) for file, fault in bad}
        return output.print_json({"folder": str(known.folder), **found.facts(), "errors": errors})
    for line in found.lines():
        output.say(line)
    for file, fault in bad:
        output.say(f"left out: {file}: {str(fault).splitlines()[0]}")
    return None


def _listed(known: Rules, name: str) -> dict[str, Any]:
    from floodmark.views.rules.graph import schedule

    rule = known.good.get(name)
    if rule is None:
        return {"rule": name, "error": str(known.fault(name))}
    return {
        "rule": name,
        "description": rule.description,
        "group": rule.group,
        "schedule": schedule(rule),
        "qos": rule.qos,
        "sinks": [sink.address or sink.kind for sink in rule.sinks],
        "tags": list(rule.airflow.tags),
        "error": None,
    }


def _shown(entry: dict[str, Any], column: str) -> Any:
    if entry["error"] is not None:
        return {"rule": entry["rule"], "description": f"bad rule file: {entry['error'].splitlines()[0]}"}.get(column)
    if column == "sinks":
        return ", ".join(map(last_part, entry["sinks"]))
    if column == "description":
        return entry["description"].split("\n")[0]
    return str(entry[column]) if entry[column] is not None else None
