"""`floodmark preview`: run the rule's SQL over a sample of its input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output
from floodmark.views.formats import iso

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule
    from floodmark.spark.look.preview import Preview


def preview(
    name: options.RuleName,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Maximum number of result rows to print.")] = 20,
    sample: Annotated[
        int, typer.Option("--sample", min=1, help="Maximum number of input rows to read of each stream.")
    ] = 10_000,
    rules: options.RulesDir = options.RULES,
    master: options.Master = options.MASTER,
    as_json: options.AsJson = False,
) -> None:
    """Run the SQL in batch over a bounded sample of the input, and show rows and types. Writes nothing.

    Each row of a windowed rule shows whether its window is final at the sample's watermark. A run emits only final
    windows.

    Example: `floodmark preview departure_delays --rows 5`
    """
    from floodmark.cli.shared.selection import rule_named
    from floodmark.connectors.preflight import check_streams

    rule = rule_named(rules, name)
    check_streams(rule, None)
    found = _previewed(rule, master, sample, rows)
    if as_json:
        return output.print_json(_facts(rule, found))
    return _report(rule, found)


def _previewed(rule: Rule, master: str, sample: int, rows: int) -> Preview:
    from floodmark.spark.look.preview import preview
    from floodmark.spark.session.session import root_session

    session = root_session(master, [rule])
    try:
        return preview(session, rule, sample, rows)
    finally:
        session.stop()


def _facts(rule: Rule, found: Preview) -> dict[str, Any]:
    from floodmark.core.rules.sinks.sinkcolumns import describe_sink

    return {
        "rule": rule.rule,
        "sample": {name: counts.parts for name, counts in found.counts.items()},
        "expected": [one.facts() for one in found.expected],
        "watermark": iso(found.watermark, found.zoned),
        "columns": [{"name": name, "type": kind} for name, kind in found.columns],
        "rows": [{"final": final, "values": list(values)} for values, final in found.rows],
        "more": found.more,
        "sinks": [{"sink": sink.address or sink.kind, "takes": list(describe_sink(sink))} for sink in rule.sinks],
    }


def _report(rule: Rule, found: Preview) -> None:
    from floodmark.core.rules.sinks.sinkcolumns import describe_sink

    windowed = bool(rule.query.windows)
    for name, counts in found.counts.items():
        dropped = f", {counts.dropped} dropped" if counts.dropped else ""
        output.say(
            f"stream {name}: {counts.read} rows sampled, {counts.filtered} filtered{dropped}, {counts.dead} dead"
        )
    for one in found.expected:
        output.say(f"expect {one.text()}")
    if windowed:
        output.say(f"watermark of the sample: {iso(found.watermark, found.zoned) or 'none yet'}")
    output.say()
    names = [f"{name} ({kind})" for name, kind in found.columns]
    shown = [[*map(str, values), *(["final" if final else "open"] if windowed else [])] for values, final in found.rows]
    output.table([*names, *(["window"] if windowed else [])], shown)
    if windowed:
        output.say("final: a run would write the row now; open: the row waits until the watermark passes its window")
    for sink in rule.sinks:
        for line in describe_sink(sink):
            output.say(f"sink {sink.label}: {line}")
    if found.more:
        output.say(f"… and more: raise --rows to print more than {len(found.rows)}")
