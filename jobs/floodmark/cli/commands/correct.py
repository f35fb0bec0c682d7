"""`floodmark correct`: answer a rewrite of a source that has stopped the rule, and look at its effect before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output, rehearsals, rulechange
from floodmark.cli.shared.withspark import with_spark
from floodmark.core.text.tablenames import last_part
from floodmark.errors import Busy, Refused
from floodmark.views.extents import extent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.core.rules.rule import Rule
    from floodmark.spark.rule.backfill.backfilling import BackfillResult
    from floodmark.spark.rule.epochs.reports import RunReport
    from floodmark.spark.rule.run import RuleRun

# Effects on a rule that reads a sink as a stream, on one that looks rows up in it, and on readers of the first.
BECOMES = (
    "its next run follows with `on_rewrite: correct`, and stops without it",
    "its next epoch looks up the new rows",
    "the same, after that rule",
)


def correct(
    name: options.RuleName,
    *,
    skip: Annotated[
        bool,
        typer.Option("--skip", help="Do not correct them: neither what the commits remove nor what they add counts."),
    ] = False,
    streams: Annotated[
        list[str] | None,
        typer.Option("--stream", help="With --skip: act on this stream alone. Repeat for several.", show_default=False),
    ] = None,
    cascade: rehearsals.CascadeOption = False,
    page: rehearsals.PageOption = None,
    change: rulechange.Change,
    master: options.Master = options.MASTER,
) -> None:
    """Recompute what a DELETE, UPDATE, MERGE or overwrite of a source changes, and run the rule.

    A rule stops at a commit that removes or changes rows that it has read, unless its stream says `on_rewrite: correct`
    or `skip`. This command gives that answer once. The windows, or keys, of the rows that left and came are recomputed
    from the source as it is now, in the sinks and in the state; everything else stays. With `on_rewrite: correct` in
    the file, each run does the same by itself; `--skip` then gives up a correction that cannot succeed, if no other
    stream has stopped the rule. `--skip --stream NAME` acts on one stream, whatever the others do.

    Example: `floodmark correct departure_delays --dry-run --cascade`
    """
    from floodmark.cli.commands.rows import begun
    from floodmark.connectors.planning.rewrites import answered, unread
    from floodmark.core.lifecycle.corrections import skips
    from floodmark.core.lifecycle.life import check_living
    from floodmark.core.lifecycle.zones import zoned
    from floodmark.ledger.forgetting import check_forget_ended
    from floodmark.ledger.home import Home

    rehearsals.check_shown(change.dry_run, cascade, page)
    rule, _, head = begun(change.rules, change.root, name)
    check_living(head, name)
    check_forget_ended(Home(change.root, name), head)
    if skip and change.dry_run:
        raise Refused("expected --dry-run without --skip: what is passed over changes no result")
    if streams and not skip:
        raise Refused("expected --stream with --skip: each run corrects all streams together")
    place = Home(change.root, name)
    skipped = skips(rule, head, unread(rule, place, head), streams or ()) if skip else None
    rule = answered(rule, place, head, "skip", skipped.over) if skipped else answered(rule, place, head, "correct")
    for said in skipped.described() if skipped and not change.as_json else ():
        output.say(f"{name}: {said}")
    readers = rulechange.downstream([str(sink.address) for sink in rule.sinks if sink.address], change.rules, name)
    if not change.as_json and not cascade:
        readers.describe(*BECOMES)
    if change.dry_run:
        forecast = rehearsals.Forecast.of(rule, change.rules, change.root) if cascade else None

        def look(session: SparkSession) -> dict[str, Any]:
            found = _job(session, rule, change).rehearse_correction()
            return _expected(rule, found, zoned(rule, head)) | rehearsals.cascade_facts(forecast, session, found)

        found = with_spark(rule, master, look, forecast.rules if forecast else ())
        facts = found | {"downstream": readers.facts()}
        rehearsals.write_page(page, f"{name}: {_what(facts)}", facts)
        return output.print_json(facts) if change.as_json else _say_expected(facts)
    if readers.folded:
        rulechange.confirm(change.yes, "correct asks for confirmation before it replaces rows that other rules read")
    given_up = skipped.given_up if skipped else {}
    facts = _facts(name, with_spark(rule, master, lambda session: _job(session, rule, change).run(given_up)), skip)
    return output.print_json(facts | {"downstream": readers.facts()}) if change.as_json else _say_done(facts)


def _job(session: SparkSession, rule: Rule, change: rulechange.Change) -> RuleRun:
    from floodmark.spark.rule.run import RuleRun

    return RuleRun(session, rule, change.root, change.run, lambda epoch: None)


def _expected(rule: Rule, found: BackfillResult | None, zone: bool) -> dict[str, Any]:
    """What a correction would do now."""
    facts: dict[str, Any] = {
        "rule": rule.rule,
        "done": False,
        "from": None,
        "to": None,
        "all": False,
        "keys": None,
        "rewrites": {},
        "sinks": {},
    }
    if found is None:
        return facts
    intent = found.intent
    rewrites = {
        name: {"commits": one.commits, "left": one.left.rows, "came": one.came.rows}
        for name, one in intent.rewrites.items()
    }
    return (
        facts
        | extent(intent, zone)
        | {"keys": intent.most_keys, "rewrites": rewrites, "sinks": rehearsals.sink_facts(found)}
    )


def _what(facts: dict[str, Any]) -> str:
    if not facts["rewrites"]:
        return "there is nothing to correct"
    if not _touches(facts):
        return "no result depends on these rows"
    if facts["all"]:
        return "all results would be recomputed"
    what = f"{facts['keys']} keys" if facts["keys"] else f"{facts['from']} to {facts['to']}"
    return f"results of {what} would be recomputed"


def _touches(facts: dict[str, Any]) -> bool:
    return bool(facts["all"] or facts["from"] or facts["keys"])


def _say_expected(facts: dict[str, Any]) -> None:
    rule = facts["rule"]
    if not facts["rewrites"]:
        output.say(f"{rule}: no row that it has read was removed or changed: there is nothing to correct")
        return
    for stream, one in facts["rewrites"].items():
        output.say(f"{rule}: stream {stream}: {_moved(one)}")
    output.say(f"  {_what(facts)}")
    if not _touches(facts):
        return
    for sink, rows in facts["sinks"].items():
        rehearsals.say_sink(sink, rows)
    rehearsals.say_steps(facts.get("cascade"))


def _facts(rule: str, report: RunReport, skip: bool) -> dict[str, Any]:
    """What the run did. Raises Busy if it was to correct, and another run has that in hand: nobody knows its end."""
    if report.left is not None and not skip:
        raise Busy(f"rule {rule}: {report.left}. Then run `floodmark correct {rule}` again")
    skipped = [commit for commits in report.skipped.values() for commit in commits]
    skipped += [commit for epoch in report.epochs for commits in epoch.skipped.values() for commit in commits]
    corrections = [vars(one) for one in report.corrections]
    return {
        "rule": rule,
        "done": True,
        "corrections": corrections,
        "skipped": skipped,
        "epochs": len(report.epochs),
        "left": report.left,
    }


def _say_done(facts: dict[str, Any]) -> None:
    rule = facts["rule"]
    for one in facts["corrections"]:
        output.say(f"{rule}: correction {one['number']}: {_moved(one)}")
        for sink, (rows, removed) in one["replaced"].items():
            output.say(f"  sink {last_part(sink)}: {rows} rows replace {removed}")
    if facts["skipped"]:
        output.say(f"{rule}: passed over {', '.join(facts['skipped'])}")
    if facts["left"]:
        output.say(f"{rule}: {facts['left']}")
    if not facts["corrections"] and not facts["skipped"]:
        output.say(f"{rule}: no row that it has read was removed or changed: nothing was corrected")


def _moved(one: dict[str, Any]) -> str:
    return f"{one['left']} rows left and {one['came']} came by {', '.join(one['commits'])}"
