"""Turn a rule's text into its session and plan, with the columns that its epochs read."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from floodmark.connectors.delta.lookups import check_open_lookups, pinned_now
from floodmark.connectors.ports.registry import sources
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Columns, Intent, Pinned
from floodmark.core.rules.checks.columns import check_expressions
from floodmark.core.rules.rule import Rule
from floodmark.core.rules.sinks.sinkcolumns import grows
from floodmark.errors import SqlRefused
from floodmark.ledger.home import Home
from floodmark.spark.fold.folds import fold_of
from floodmark.spark.read import lookuprows
from floodmark.spark.read.expectationchecks import checks_for
from floodmark.spark.read.shape import shape_of
from floodmark.spark.rule import generation
from floodmark.spark.rule.checks.columnnames import check_named
from floodmark.spark.rule.checks.storing import check_stored
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.jvm import without_rows
from floodmark.spark.session.session import cut, rule_session
from floodmark.spark.write.merging.upsertchecks import check_upserts
from floodmark.spark.write.sinkframes import check_sink_columns


def analyse(
    root: SparkSession,
    rule: Rule,
    home: Home | None,
    head: Head | None,
    intent: Intent | None = None,
    gaining: bool = False,
    engine: Mapping[str, str] | None = None,
    types: Columns | None = None,
    lookups: Mapping[str, Pinned] | None = None,
    begins: bool = False,
) -> tuple[SparkSession, Plan]:
    """The rule's session and plan. Raises SqlRefused or WrongColumn if Spark rejects the SQL or the columns.

    `gaining`: for new epochs, which read columns that were added to the streams, if the rule accepts these.
    `engine`, `lookups`: those of the open backfill, if one is to be finished. `types`: of columns, to read them with.
    `begins`: for a generation that a reset is to begin.
    """
    check_expressions(rule)
    ansi = intent.ansi if intent else rule.ansi
    session = rule_session(root, rule, intent.zone if intent else rule.timezone, ansi)
    cut(session, intent.engine if intent else engine or {})
    frozen = frozen_columns(rule, head, intent)
    if gaining and grows(rule):
        frozen = {name: [*columns, *gained(rule, home, name, columns)] for name, columns in frozen.items()}
    if intent is not None:
        check_open_lookups(rule, intent)
    lookuprows.show_columns(session, rule, intent.lookups if intent else lookups or pinned_now(rule))
    try:
        shape = shape_of(session, rule, home, frozen, types or _recorded(head, intent), begins)
        fold = fold_of(rule, shape, session)
        output = fold.output_schema(session)
    except AnalysisException as fault:
        raise SqlRefused(f"rule {rule.rule}: {_first_line(fault)}") from fault
    generation.check_output(rule, output)
    check_upserts(session, rule, output)
    check_sink_columns(session, rule, output)
    asked = checks_for(without_rows(session, output), rule.expect, f"rule {rule.rule}, results")
    plan = Plan(rule, home, fold, output, asked)
    if intent is None:  # an open epoch is finished with the tables that it has
        check_stored(plan)
        check_named(plan)
    return session, plan


def frozen_columns(rule: Rule, head: Head | None, intent: Intent | None) -> dict[str, list[str]]:
    """`SELECT *` means the columns that epochs have read so far, without columns that were added to the table since."""
    if head is None or head.seal is not None or not rule.query.star:
        return {}
    return {
        name: [column for column, _ in columns if column != _made_time(rule, name)]
        for name, columns in _known(head, intent).items()
    }


def _recorded(head: Head | None, intent: Intent | None) -> Columns:
    """The columns with which an open epoch started. An intent before format 8 does not say which types changed."""
    if head is None or intent is None or intent.format < 8:
        return {}
    return _known(head, intent)


def _known(head: Head, intent: Intent | None) -> Columns:
    """The columns that epochs have read so far, including an open one."""
    return (intent.columns if intent else {}) or head.columns


def gained(rule: Rule, home: Home | None, stream: str, known: list[str]) -> list[str]:
    """The columns of a stream's table that are not known."""
    there = {column.lower() for column in (*known, _made_time(rule, stream) or "")}
    return [column for column in sources(rule, home)[stream].columns() if column.lower() not in there]


def _made_time(rule: Rule, stream: str) -> str | None:
    """The event time that is not in a stream's table, because an expression computes it."""
    time = rule.streams[stream].event_time
    return time.name if time and time.expr else None


def _first_line(fault: PySparkException) -> str:
    return str(fault).split("\n", 1)[0]
