"""Evaluate expressions over one row so that an error differs from null, to find the rows for which one raises.

Spark's TryEval is null if its child raises. Its child here is a struct, which is never null by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.rules.rule import Rule
from floodmark.core.sql.rowchecks import RowCheck
from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.session.jvm import jvm_class

SHOWN = 200  # characters of an expression in a reason
# Spark's expressions that never raise for a row; floating-point arithmetic and casts are judged in `_may_raise`.
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_CALM = frozenset(
    """
    Alias AttributeReference GetStructField Literal CreateNamedStruct
    And Or Not EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual In IsNull IsNotNull IsNaN
    Between CaseWhen Coalesce If Nvl
    Upper Lower Length Concat Substring StringTrim StringTrimLeft StringTrimRight Contains StartsWith EndsWith
    Year Quarter Month DayOfMonth DayOfWeek DayOfYear Hour Minute Second
    """.split()
)
_OF_NUMBERS = ("Add", "Subtract", "Multiply", "UnaryMinus", "Abs")
_FLOATING = ("double", "float")


@dataclass(frozen=True)
class Checks:
    """The expressions of a stream that may raise for a row: its event time's `expr`, its `where`, parts of the SQL.

    `time_first`: the `where` reads the event time, so it cannot be evaluated without one.
    """

    time: str | None = None
    where: str | None = None
    sql: tuple[RowCheck, ...] = ()
    time_first: bool = False

    def __bool__(self) -> bool:
        return bool(self.time or self.where or self.sql)

    @property
    def reasons(self) -> list[str]:
        """Reasons by the number of the expression that raised: 0 the event time, 1 the `where`, then the SQL's."""
        found = [("event_time.expr", self.time or ""), ("where", self.where or "")]
        return [_reason(place, sql) for place, sql in (*found, *((check.place, check.sql) for check in self.sql))]


NONE = Checks()
TIME, WHERE, SQL = 0, 1, 2  # numbers of the expressions; from SQL on: those of the rule's SQL


def _reason(place: str, sql: str) -> str:
    text = " ".join(sql.split())
    return f"{place} fails: {text if len(text) <= SHOWN else f'{text[: SHOWN - 3]}...'}"


def checks_of(rule: Rule, name: str, table: DataFrame, timed: DataFrame) -> Checks:
    """The expressions that may raise for a row of stream `name`. `timed`: the table with its event time."""
    stream = rule.streams[name]
    time = stream.event_time and stream.event_time.expr
    where = stream.where
    sql = [check for check in rule.row_checks if check.stream == name]
    risky = risky_of(timed, [*([where] if where else []), *(check.sql for check in sql)])
    return Checks(
        time if time and time in risky_of(table, [time]) else None,
        where if where in risky else None,
        tuple(check.guarded(_conditions(timed, check.guards)) for check in sql if check.sql in risky),
        bool(where and time and _reads(where, str(stream.event_time and stream.event_time.name))),
    )


def _reads(expression: str, column: str) -> bool:
    from floodmark.core.sql import analyse_expression

    return column.lower() in analyse_expression(expression)


def risky_of(frame: DataFrame, expressions: Sequence[str]) -> set[str]:
    """The expressions that can be computed from one row of `frame`, and may raise for it."""
    found = _resolved(frame, expressions) if expressions else {}
    return {sql for sql, resolved in found.items() if _may_raise(frame, resolved)}


def _resolved(frame: DataFrame, expressions: Sequence[str]) -> Mapping[str, Any]:
    """Spark's expressions, by SQL, without those that cannot be computed from one row of the frame."""
    try:
        plan = frame.select(*map(F.expr, expressions))._jdf.queryExecution().analyzed()
    except AnalysisException:
        plan = None
    if plan is not None and plan.nodeName() == "Project":
        return {sql: plan.projectList().apply(i) for i, sql in enumerate(expressions)}
    apart = [_resolved(frame, [text]) for text in expressions] if len(expressions) > 1 else []
    return {sql: one for found in apart for sql, one in found.items()}


def _conditions(frame: DataFrame, guards: Sequence[str]) -> set[str]:
    """The conditions that can be computed from one row of the frame."""
    found = _resolved(frame, guards) if guards else {}
    return {sql for sql, resolved in found.items() if resolved.dataType().typeName() == "boolean"}


def _may_raise(frame: DataFrame, node: Any) -> bool:
    kind = node.getClass().getSimpleName()
    calm = kind in _CALM or (kind in _OF_NUMBERS and node.dataType().typeName() in _FLOATING)
    if kind == "Cast":
        cast = jvm_class(frame.sparkSession, f"{_EXPRESSIONS}.Cast")
        calm = cast.canUpCast(node.child().dataType(), node.dataType())
    children = node.children()
    return not calm or any(_may_raise(frame, children.apply(i)) for i in range(children.size()))


def tried(frame: DataFrame, sql: str) -> Column:
    """A struct with the value as `v`; null if the expression raises for the row.

    Spark computes repeated subexpressions of a projection in advance, outside the try, unless they are in a branch of
    a condition. So this one is in a branch whose condition is always true, which Spark cannot know.
    """
    always = f"array(true, true)[CAST({quoted(frame.columns[0])} IS NULL AS INT)]"
    given = F.expr(f"CASE WHEN {always} THEN named_struct('v', {sql}\n) END")
    utils = jvm_class(frame.sparkSession, "org.apache.spark.sql.classic.ExpressionUtils")
    evaluated = jvm_class(frame.sparkSession, f"{_EXPRESSIONS}.TryEval")(utils.expression(given._jc))
    return Column(utils.column(evaluated))
