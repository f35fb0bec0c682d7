"""Lists the parts of a query's tree that are refused, with their messages."""

from __future__ import annotations

from sqlglot import exp

from floodmark.core.sql.words.functions import NOT_YET

# Arguments of a SELECT that are allowed; then those refused: argument -> (words to locate it by, message).
SELECT_ARGS = frozenset({"with_", "expressions", "from_", "joins", "where", "group", "having", "distinct"})
_NO_FIRST = (
    "a stream never ends, so it has no first rows: leave it out, or number the rows within a window or by key "
    "(row_number() OVER ...) and keep the first ones"
)
_NO_ORDER = "the rows of a stream's sink have no order"
REFUSED_ARGS: dict[str, tuple[tuple[str, ...], str]] = {
    "limit": (("limit", "fetch"), f"LIMIT: {_NO_FIRST}"),
    "offset": (("offset",), f"OFFSET: {_NO_FIRST}"),
    "order": (("order",), f"ORDER BY: {_NO_ORDER}; leave it out"),
    "sort": (("sort",), f"SORT BY: {_NO_ORDER}; leave it out"),
    "cluster": (("cluster",), f"CLUSTER BY: {_NO_ORDER}; leave it out"),
    "distribute": (("distribute",), f"DISTRIBUTE BY: {_NO_ORDER}; leave it out"),
    "laterals": (("lateral",), "LATERAL VIEW: functions that return several rows are not supported yet"),
    "qualify": (("qualify",), f"QUALIFY {NOT_YET}"),
    "windows": (("window",), f"WINDOW (named windows, OVER) {NOT_YET}"),
    "pivots": (("pivot", "unpivot"), f"PIVOT and UNPIVOT: that {NOT_YET}"),
    "sample": (("tablesample",), "TABLESAMPLE: a replay would draw other rows"),
    "hint": (("select",), "a hint is not allowed; use `spark: {conf: ...}`"),
    "version": (("timestamp", "version", "for"), "time travel (AS OF) is not allowed; use the stream's `start`"),
    "when": (("timestamp", "version", "for"), "time travel (AS OF) is not allowed; use the stream's `start`"),
}
SET_OPERATIONS = {
    exp.Union: (("union",), f"UNION without ALL {NOT_YET}; write UNION ALL to keep every row"),
    exp.Intersect: (("intersect",), f"INTERSECT {NOT_YET}; write a JOIN within a bound of event time"),
    exp.Except: (("except", "minus"), f"EXCEPT {NOT_YET}; write a LEFT ANTI JOIN within a bound of event time"),
}
# Expressions that are not functions; functions are checked by name, see `functions`.
EXPRESSIONS: tuple[type[exp.Expr], ...] = (
    exp.Alias, exp.Between, exp.Binary, exp.Boolean, exp.Bracket, exp.Column, exp.Cube, exp.DataType,
    exp.DataTypeParam, exp.Distinct, exp.Escape, exp.Filter, exp.Func, exp.GroupingSets, exp.HexString,
    exp.Identifier, exp.In, exp.Interval, exp.IntervalSpan, exp.Kwarg, exp.Lambda, exp.Literal, exp.Null, exp.Order,
    exp.Ordered, exp.Paren, exp.RawString, exp.Rollup, exp.Star, exp.Tuple, exp.Unary, exp.Var, exp.Where,
    exp.WithinGroup, exp.Any, exp.All, exp.Window, exp.WindowSpec,
)  # fmt: skip
REFUSED_EXPRESSIONS: dict[type[exp.Expr], tuple[tuple[str, ...], str]] = {
    exp.QueryTransform: (("transform",), "TRANSFORM ... USING runs a program of its own; that is not allowed"),
    exp.IgnoreNulls: (("ignore",), "IGNORE NULLS depends on row order"),
    exp.RespectNulls: (("respect",), "RESPECT NULLS depends on row order"),
    exp.Collate: (("collate",), "COLLATE: row order would decide which of several equal strings is shown"),
    exp.Placeholder: (("?",), "a parameter is not allowed; use ${NAME} of the rule file"),
    exp.Parameter: (("@",), "a parameter is not allowed; use ${NAME} of the rule file"),
}
# sqlglot reads these as an alias where Spark may read the start of a clause.
NO_ALIASES = frozenset(
    """
anti apply asof cluster cross distribute emit fetch for full inner intersect join lateral left limit match_recognize
matched minus natural offset order outer pivot qualify repeatable right sample semi sort tablesample timestamp union
unpivot using version watermark window
""".split()
)
BARE_NODES = (
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentUser,
    exp.CurrentRole,
    exp.SessionUser,
    exp.Localtime,
    exp.Localtimestamp,
)
