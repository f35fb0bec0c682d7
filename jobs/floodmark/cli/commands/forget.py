"""`floodmark forget`: remove a person's rows from all that a rule keeps beside its sinks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output, rulechange
from floodmark.cli.shared.withspark import with_spark
from floodmark.core.text.tablenames import last_part, table_label
from floodmark.errors import Refused

if TYPE_CHECKING:
    from floodmark.spark.rule.forgetting import Forgot, Found, Looked

CORRECTED = (
    "DELETE the rows there, with `on_rewrite: correct` on the stream, and run: that takes them out of the sinks, too"
)
BACKFILLED = "Remove the rows there, run, forget, then `floodmark backfill {} --all`: that takes them out of the sinks"
SINK = "DELETE the rows there, or follow what is said of the sources"
MALFORMED = "forget them by --where \"{} LIKE '%...%'\""


def forget(
    name: options.RuleName,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            metavar="SQL",
            show_default=False,
            help="The rows: a condition over the columns of the tables. `-` reads it from standard input.",
        ),
    ],
    *,
    change: rulechange.Change,
    master: options.Master = options.MASTER,
) -> None:
    """Remove rows, such as a person's, from all that a rule keeps beside its sinks, so that no file holds them.

    These are its state, late, dead and undelivered tables, landings and outboxes: their rows, old data files, and log
    entries with smallest and largest values. Sinks and sources are listed with what they still hold, and are not
    touched. So first DELETE the rows in the source, with `on_rewrite: correct` on the stream, and run the rule; then
    forget.

    A table that lacks a column of the condition is not looked at. State that adds up rows (sums, counts, windows) has
    only the columns of its key: it is removed for a key, and a person's part in the sum of another key stays. A key
    that comes again starts from nothing.

    The ledger records who removed how many rows of each table, and a digest of the condition, never its text. `audit`
    can no longer recompute what these tables held before. If the command is killed, repeat it: until then no run
    starts.

    Example: `floodmark forget departure_delays --where "passenger = 'p-4711'" --dry-run`
    """
    from floodmark.ledger.forgetting import check_askable
    from floodmark.spark.rule.forgetting import forget as forget_rows
    from floodmark.spark.rule.forgetting import rehearse

    condition = sys.stdin.read().strip() if where == "-" else where
    _check(condition)
    place, reader, head = rulechange.begun_home(change.root, name)
    check_askable(reader, place, condition)
    if change.dry_run or not (change.yes or head.forgetting):
        found = with_spark(head.rule, master, lambda session: rehearse(session, place, condition))
        if not change.as_json:
            _say_found(name, found)
        if change.dry_run or found.is_nothing:
            return output.print_json(_facts(name, found, done=False)) if change.as_json else None
    rulechange.confirm(change.yes, "forget asks for confirmation before it removes rows")
    say = _progress(change.as_json)
    done = with_spark(head.rule, master, lambda session: forget_rows(session, place, change.run, condition, say))
    if change.as_json:
        return output.print_json(_facts(name, done.found, done=done.asked is not None) | _done(done))
    if done.found is not None and (change.yes or done.asked is None):
        _say_found(name, done.found)
    return _say_done(name, done)


def _check(condition: str) -> None:
    """Raise Refused for a condition that is not allowed, or that is not about any column."""
    from floodmark.core.lifecycle.replays import check_expression
    from floodmark.core.sql import columns_in

    check_expression("--where", condition)
    if not columns_in(condition):
        raise Refused("--where: expected a condition over columns, such as k = 'p-4711', found one without a column")


def _progress(as_json: bool) -> Any:
    return lambda text: output.say(f"  {text}", err=as_json)


def _say_found(name: str, found: Found) -> None:
    if found.is_nothing:
        output.say(f"{name}: no table of the rule has such rows: nothing to forget")
    else:
        output.say(f"{name}: what the rule keeps beside its sinks:")
        for table, one in (found.own | found.copies).items():
            output.say(f"  {table_label(table)}: {_looked(one)}")
    _say_malformed(found)
    _say_bounds(found)
    output.say("not touched:")
    for address, one in found.sinks.items():
        output.say(f"  sink {last_part(address)}: {_rows(one)}{f'. {SINK}' if one.rows else ''}")
    for stream, address in found.sources.items():
        way = CORRECTED if stream in found.corrects else BACKFILLED.format(name)
        output.say(f"  source {stream} ({address}): not looked at. {way}")
    for row, kind in found.ledger.items():
        output.say(f"  ledger row {row} ({kind}): its text has a value of the condition")
    for file in found.names:
        output.say(f"  {file}: it names a file with a value of the condition; `floodmark drop {name} --all` removes it")
    if found.rewritten:
        told = ", ".join(map(table_label, found.rewritten))
        output.say(f"audit can no longer recompute what was in {told} before; the ledger keeps digests and counts")


def _say_malformed(found: Found) -> None:
    """In a landing, another column has the text of a malformed record than in a table of dead rows."""
    for tables, column in ((found.own, "_reason"), (found.copies, "_floodmark_malformed")):
        for table, one in tables.items():
            if one.malformed:
                text = f"{one.malformed} malformed records have a value of the condition in their text"
                output.say(f"  {table_label(table)}: {text}; {MALFORMED.format(column)}")


def _say_bounds(found: Found) -> None:
    left = [table_label(table) for table, one in found.own.items() if one.bounds]
    if left and found.is_nothing:
        output.say(f"  the logs of {', '.join(left)} have smallest and largest values of files that are gone; "
                   "`floodmark maintain` cuts them after `keep_log`")  # fmt: skip


def _looked(one: Looked) -> str:
    older = ", and files that no version needs any more have some" if one.older else ""
    older += ", and its log has smallest and largest values of files that are gone" if one.bounds else ""
    return f"{_rows(one)}{older}"


def _rows(one: Looked) -> str:
    return f"not looked at: {one.why}" if one.rows is None else f"{one.rows} rows"


def _say_done(name: str, done: Forgot) -> None:
    if done.asked is None:
        return
    for table, left in done.left.items():
        output.say(f"  {table_label(table)}: {left.gone} rows are gone, {left.rows} stay")
    for table in done.asked.removed:
        output.say(f"  {table}: removed; it was of an earlier generation")
    output.say(f"{name}: forgotten")


def _facts(name: str, found: Found | None, done: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"rule": name, "done": done, "found": None}
    if found is not None:
        own, sinks = ({at: vars(one) for at, one in tables.items()} for tables in (found.own, found.sinks))
        told = {"tables": own, "sinks": sinks, "sources": found.sources, "unproven": [*found.rewritten]}
        told["copies"] = {folder: vars(one) for folder, one in found.copies.items()}
        facts["found"] = told | {
            "removed": list(found.removed),
            "ledger_rows": list(found.ledger),
            "names": found.names,
        }
    return facts


def _done(done: Forgot) -> dict[str, Any]:
    return {"left": {table: {"gone": one.gone, "rows": one.rows} for table, one in done.left.items()}}
