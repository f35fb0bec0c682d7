"""Tells whether rows meet the versions of a lookup table with `history` by their event time, or that of their window.

Versions that ended before all event times of an epoch match none of its rows then. Otherwise any version may match.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql.forms.joins import conjuncts, side_of
from floodmark.core.sql.forms.relations import columns_read
from floodmark.core.sql.forms.window import lookups_of, streams_of
from floodmark.core.sql.tree.columns import Columns, Meaning, Part, Start, Time, meaning_of, names_column
from floodmark.core.sql.tree.parse import parse
from floodmark.core.sql.tree.shape import Lookup, Read, Select, Shape, Source
from floodmark.core.sql.windows import Spec, grids
from floodmark.core.sql.words.lexis import words_of

END = "_valid_to"
_COMPARED = (exp.LT, exp.LTE, exp.GT, exp.GTE)


def undated(sql: str, streams: Mapping[str, str | None], lookups: Collection[str]) -> dict[str, str]:
    """The lookup tables of which any version may match a row, whatever its event time, each with the reason.

    `streams`, `lookups`: as for `analyse`. A table is not among them if wherever rows meet it, an event time of a
    stream, unchanged, or the start or end of its window, has to be before `_valid_to`.
    """
    found = dict[str, str]()
    for met, conditions in _met(sql, streams, lookups):
        reason = _unbounded(met, conditions)
        if reason:
            found |= dict.fromkeys(lookups_of(met.read.source), reason)
    return found


def by_start(sql: str, streams: Mapping[str, str | None], lookups: Collection[str]) -> frozenset[str]:
    """The lookup tables whose versions rows may meet by the start of their window, which may lie before all rows."""
    return frozenset().union(
        *(
            lookups_of(met.read.source)
            for met, conditions in _met(sql, streams, lookups)
            if not any(_lies_in_window(met.bound_in(one.node, one.filled)) for one in conditions)
        )
    )


def first_start(windows: Iterable[Spec], first: int) -> int:
    """The first start that windows of rows from an event time on may have, or that time, in microseconds."""
    return min([first, *(grid.start_from(first - grid.size_us + 1) for grid in grids(windows))])


def _met(
    sql: str, streams: Mapping[str, str | None], lookups: Collection[str]
) -> Iterator[tuple[_Met, list[_Condition]]]:
    """Each relation of versions in the SQL, with the conditions on it."""
    words = words_of(sql)
    shape = Shape(sql, words, streams, lookups, True)
    for select, columns in columns_read(shape, shape.root(parse(sql, words))):
        for read in (one for one in select.reads if not streams_of(one.source)):
            yield _Met(read, _ends(read.source), columns), list(_conditions(select, read))


def _ends(source: Source) -> frozenset[str]:
    """The columns that are the end of a version, in lower case, where each row is one of one version of one table."""
    if isinstance(source, Lookup):
        return frozenset({END})
    if not isinstance(source, Select) or len(source.reads) != 1 or source.grouped or source.node.args.get("distinct"):
        return frozenset()
    (read,), items = source.reads, source.node.expressions
    below = frozenset[str]() if any(item.find(exp.Window) for item in items) else _ends(read.source)
    return frozenset(name for item in items for name in _passed_on(item, read, below))


def _passed_on(item: exp.Expr, read: Read, ends: frozenset[str]) -> Iterator[str]:
    """The names under which a select list's item passes on some of these columns."""
    inner = item.unalias()
    if item.is_star:
        star = inner.this if isinstance(inner, exp.Column) else inner
        hidden = {column.name.lower() for column in star.args.get("except_") or []}
        yield from ends - hidden
        return
    passed = _unless_null(inner)  # no version has NULL as its end
    if passed is not None and names_column(passed, read.alias) and passed.name.lower() in ends:
        yield item.alias_or_name.lower()


@dataclass(frozen=True)
class _Condition:
    """`filled`: whether it also meets rows in which an outer join has filled the relation's columns with NULL."""

    node: exp.Expr
    filled: bool


def _conditions(select: Select, read: Read) -> Iterator[_Condition]:
    """The conditions without which no row of this relation has any effect."""
    hidden = side_of(read.join) in ("semi", "anti")
    filled = side_of(read.join) == "left" or any(side_of(one.join) in ("right", "full") for one in select.reads)
    for one in select.reads:
        on = one.join.args.get("on") if one.join is not None else None
        if on is not None and (one is read or (not hidden and side_of(one.join) == "inner")):
            yield from (_Condition(each, filled and one is not read) for each in conjuncts(on))
    where = select.node.args.get("where")
    if where is not None and not hidden:
        yield from (_Condition(each, filled) for each in conjuncts(where.this))


@dataclass(frozen=True)
class _Met:
    """A relation of versions, where rows of streams meet it. `columns`: of all relations there."""

    read: Read
    ends: Collection[str]
    columns: Columns

    def bound_in(self, condition: exp.Expr, filled: bool) -> Meaning:
        """The time that has to be before the end of the relation's version, of a row or its window; None without one.

        filled: whether the condition must reject NULL as the end, too. No version has that, but a row without a match
        has.
        """
        condition = condition.unnest()
        if isinstance(condition, exp.Or) and not filled:
            arms = [condition.left.unnest(), condition.right.unnest()]
            left = [arm for arm in arms if not self._is_open(arm)]
            return self.bound_in(left[0], filled) if len(left) == 1 else None
        earlier, later = _ordered(condition)
        if earlier is None or not self._is_end(later if filled else _unless_null(later)):
            return None
        meaning = meaning_of(earlier, self.columns)
        return meaning if _is_time(meaning) else None

    def _is_open(self, arm: exp.Expr) -> bool:
        return isinstance(arm, exp.Is) and isinstance(arm.expression, exp.Null) and self._is_end(arm.this)

    def _is_end(self, side: exp.Expr | None) -> bool:
        return side is not None and names_column(side, self.read.alias) and side.name.lower() in self.ends


def _unless_null(side: exp.Expr | None) -> exp.Expr | None:
    """What an expression is where its first part is not NULL."""
    if isinstance(side, exp.Anonymous) and side.name.lower() in ("coalesce", "ifnull", "nvl"):
        return next(iter(side.expressions), None)
    return side


def _is_time(meaning: Meaning) -> bool:
    return isinstance(meaning, (Time, Start)) or (isinstance(meaning, Part) and meaning.name in ("start", "end"))


def _lies_in_window(meaning: Meaning) -> bool:
    """Whether it is a time that is not before the first row of its window."""
    return isinstance(meaning, Time) or (isinstance(meaning, Part) and meaning.name == "end")


def _ordered(condition: exp.Expr) -> tuple[exp.Expr | None, exp.Expr | None]:
    """The earlier and the later side of a comparison."""
    if isinstance(condition, exp.Not) and isinstance(negated := condition.this.unnest(), _COMPARED):
        earlier, later = _ordered(negated)
        return later, earlier
    if isinstance(condition, exp.Between):
        return condition.this, condition.args["high"]
    if isinstance(condition, (exp.LT, exp.LTE)):
        return condition.left, condition.right
    return (condition.right, condition.left) if isinstance(condition, (exp.GT, exp.GTE)) else (None, None)


def _unbounded(met: _Met, conditions: list[_Condition]) -> str:
    """Why rows may meet any version; empty if a condition bounds them."""
    if any(met.bound_in(one.node, one.filled) for one in conditions):
        return ""
    named = [one for one in conditions if any(c.name.lower() in met.ends for c in one.node.find_all(exp.Column))]
    for one in named:
        if met.bound_in(one.node, filled=False):
            return f"rows that a LEFT JOIN finds no match for pass its comparison with {END}: {one.node.sql('spark')}"
    if named:
        return (
            f"the SQL compares {END} with something other than a stream's unchanged event time: "
            f"{named[0].node.sql('spark')}"
        )
    return f"no condition of the SQL's join says that a stream's unchanged event time is before {END}"
