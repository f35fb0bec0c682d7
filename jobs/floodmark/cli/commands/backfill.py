"""`floodmark backfill`: recompute a past interval and replace it in the sinks, while the rule keeps running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.commands.run import moment
from floodmark.cli.shared import options, output, rehearsals, rulechange
from floodmark.cli.shared.rulechange import generated_run_id
from floodmark.cli.shared.withspark import with_spark
from floodmark.views.extents import extent, words
from floodmark.views.formats import iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.core.lifecycle.backfills import Interval
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark.spark.rule.backfill.backfilling import BackfillResult
    from floodmark.spark.rule.run import RuleRun

    Say = Callable[[str], None]

WAIT = 600.0  # seconds
# Effects on a rule that reads a sink as a stream, on one that looks rows up in it, and on readers of the first.
BECOMES = (
    "its next run follows with `on_rewrite: correct`; without it, reset it after this backfill",
    "its next epoch looks up the new rows",
    "the same, after that rule",
)


class Joined(StrEnum):
    """The versions of lookup tables that results are joined with."""

    now = "now"
    then = "then"


def backfill(
    name: options.RuleName,
    begin: Annotated[
        datetime | None,
        typer.Option(
            "--from", metavar="T", parser=moment, help="Start of the interval (inclusive).", show_default=False
        ),
    ] = None,
    end: Annotated[
        datetime | None,
        typer.Option("--to", metavar="T", parser=moment, help="End of the interval (exclusive).", show_default=False),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Recompute all results, in place of an interval: of every rule that can be backfilled."
        ),
    ] = False,
    lookups: Annotated[
        Joined,
        typer.Option(help="Read lookup tables as they are now, or as they were then: as each epoch read them."),
    ] = Joined.now,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and exit.")] = False,
    cascade: rehearsals.CascadeOption = False,
    page: rehearsals.PageOption = None,
    align: Annotated[
        bool,
        typer.Option(
            "--align", help="Recompute the windows that start in the interval, even if its bounds cut windows."
        ),
    ] = False,
    yes: rulechange.Yes = False,
    wait: Annotated[
        float,
        typer.Option("--wait", min=0, help="Seconds to wait for a run that holds the rule's lock.", show_default="600"),
    ] = WAIT,
    run_id: options.RunId = None,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    master: options.Master = options.MASTER,
    as_json: options.AsJson = False,
) -> None:
    """Recompute the results of [--from, --to) with the current rule, late rows included, and replace exactly these.

    With `--all`, recompute everything, and replace what each sink holds in one commit. Runs continue meanwhile.
    A window belongs to the interval if it starts in it. Of running aggregates, first rows and keyed single rows, all
    keys that have rows in the interval are recomputed. If the backfill is killed, the next backfill or run finishes it.
    It asks for confirmation if other rules read the sinks as streams.

    Example: `floodmark backfill departure_delays --from 2001-01-01T00:00Z --to 2001-01-02T00:00Z --dry-run --cascade`
    """
    from floodmark.cli.commands.rows import begun
    from floodmark.connectors.places import head_now
    from floodmark.core.lifecycle.backfills import check_text, requested_interval, requested_whole, starting_in
    from floodmark.core.lifecycle.life import check_living
    from floodmark.core.lifecycle.zones import micros_of, zoned
    from floodmark.ledger.forgetting import check_forget_ended
    from floodmark.ledger.home import Home

    rehearsals.check_shown(dry_run, cascade, page)
    bounds, then = _bounds(begin, end, everything, align), lookups is Joined.then
    rule, ledger, head = begun(rules, home.absolute(), name)
    head = head_now(head, rule, ledger.id)
    check_living(head, name)
    check_forget_ended(Home(home.absolute(), name), head)
    zone = zoned(rule, head)
    low, high = (micros_of(at, rule, zone) for at in bounds) if bounds else (0, 0)
    if align and low < high:
        low, high = starting_in(rule, low, high)
        if low == high:
            return _nothing(name, as_json)

    def wanted(now: Head) -> Interval:
        check_text(rule, head, now)
        if bounds is None:
            return requested_whole(rule, now, then)
        return requested_interval(rule, now, low, high, lambda at: str(iso(at, zone)), then)

    wanted(head)
    readers = rulechange.downstream([str(sink.address) for sink in rule.sinks if sink.address], rules, name)
    if not as_json and not cascade:
        readers.describe(*BECOMES)
    if readers.folded and not dry_run:
        rulechange.confirm(
            yes, "backfill asks for confirmation before it replaces rows that other rules have processed"
        )
    root, run = home.absolute(), run_id or generated_run_id()
    forecast = rehearsals.Forecast.of(rule, rules, root) if cascade else None
    with _progress(name, as_json) as say:

        def work(session: SparkSession) -> dict[str, Any]:
            job = _job(session, rule, root, run)
            if not dry_run:
                return _facts(rule, job.backfill(wanted, wait, say), True, zone)
            found = job.rehearse_backfill(wanted)
            return _facts(rule, found, False, zone) | rehearsals.cascade_facts(forecast, session, found)

        done = with_spark(rule, master, work, forecast.rules if forecast else ())
    facts = done | {"downstream": readers.facts()}
    rehearsals.write_page(page, f"{name}: {_what(facts)}", facts)
    return output.print_json(facts) if as_json else _report(facts)


def _bounds(
    begin: datetime | None, end: datetime | None, everything: bool, align: bool
) -> tuple[datetime, datetime] | None:
    """The interval; None: all results. Raises Refused unless exactly one of them is asked for."""
    from floodmark.errors import Refused

    if everything and begin is None and end is None and not align:
        return None
    if everything or begin is None or end is None:
        found = [name for name, at in (("--from", begin), ("--to", end), ("--all", everything or None)) if at]
        found += ["--align"] if align and everything else []
        raise Refused(f"expected --from and --to, or --all alone, found {', '.join(found) or 'none of them'}")
    return begin, end


def _nothing(name: str, as_json: bool) -> None:
    if as_json:
        counts = dict.fromkeys(("read", "filtered", "dropped", "folded", "dead", "restated"), 0)
        return output.print_json({"rule": name, "done": False, "backfill": None, "from": None, "to": None,
                                "all": False, "lookups": None, "epoch": None, **counts, "sinks": {},
                                "downstream": []})  # fmt: skip
    return output.say(f"{name}: no window starts in this interval: there is nothing to recompute")


@contextmanager
def _progress(rule: str, err: bool) -> Iterator[Say]:
    """Show the progress of a backfill: a live line on a terminal, plain lines elsewhere."""
    console = output.console(err=err)
    if not console.is_terminal:
        yield lambda text: output.say(f"{rule}: {text}", err=err)
        return
    with console.status(f"{rule}: starting Spark") as status:
        yield lambda text: status.update(f"{rule}: {text}")


def _job(session: SparkSession, rule: Rule, root: Path, run: str) -> RuleRun:
    from floodmark.spark.rule.run import RuleRun

    return RuleRun(session, rule, root, run, lambda epoch: None)


def _facts(rule: Rule, put: BackfillResult, done: bool, zone: bool) -> dict[str, Any]:
    from floodmark.core.protocol.records.rows import total

    intent = put.intent
    counts = {name: count for name, count in total(intent.counts).parts.items() if name != "late"}
    return {
        "rule": rule.rule,
        "done": done,
        "backfill": intent.number if done else None,
        **extent(intent, zone),
        "keys": intent.most_keys,
        "lookups": intent.joined,
        "epoch": intent.upto,
        **counts,
        "restated": sum(intent.restated.values()),
        "sinks": rehearsals.sink_facts(put),
    }


def _what(facts: dict[str, Any]) -> str:
    what = f"backfill {facts['backfill']}" if facts["done"] else "a backfill now"
    return f"{what}, of {words(facts)}"


def _report(facts: dict[str, Any]) -> None:
    restated = f"; {facts['restated']} of these rows had been late" if facts["restated"] else ""
    read = f"{facts['folded']} rows of epochs up to {facts['epoch']} processed{restated}"
    output.say(f"{facts['rule']}: {_what(facts)}: {read}")
    if facts["lookups"] == "then":
        output.say("lookup tables are read as each epoch read them")
    for sink, rows in facts["sinks"].items():
        rehearsals.say_sink(sink, rows)
    rehearsals.say_steps(facts.get("cascade"))
