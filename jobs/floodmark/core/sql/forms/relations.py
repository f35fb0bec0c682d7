"""Describes the result of each SELECT of a query, and where the query is cut to final results.

There are four kinds of relation. "rows": single rows, each with an event time. "windows": every row belongs to one
window, and nothing above may mix windows. "totals": results that are updated for ever. "lookup": lookup tables alone,
which an epoch has whole.

A window call turns rows into rows of windows, and the query is cut there. If its rows depend on others and never enter
a window, it is cut at the uppermost SELECT that makes them depend on others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal, NamedTuple

from sqlglot import exp

from floodmark.core.sql.forms import joins, lookupjoins, over, window
from floodmark.core.sql.forms.bounds import Cut, Group, Last, all_of, cut_group, cut_rows, cut_where, last_of
from floodmark.core.sql.tree.columns import (
    Column,
    Columns,
    Fields,
    Meaning,
    Named,
    Part,
    Rest,
    Time,
    meaning_of,
    part_of,
    starred,
    under,
    united,
)
from floodmark.core.sql.tree.shape import Lookup, Select, Shape, Source, Stream, Union
from floodmark.core.sql.windows import Grid, GroupSpec, RowSpec
from floodmark.core.sql.words.function_names import WINDOWING
from floodmark.core.sql.words.functions import NOT_YET

MAX_COLUMNS = 20_000  # in all SELECTs together; a `*` twice in each of twenty would make a million
Kind = Literal["rows", "windows", "totals", "lookup"]


@dataclass(frozen=True)
class Relation:
    """The result of a SELECT, with `cuts`: the places at which it is cut.

    uncut: the SELECTs below that must not be cut, because one above needs all of their rows. ranked: the SELECTs with
    an order in which no two rows may be equal. lasts: what they look back to by rows.
    """

    columns: Columns
    kind: Kind = "rows"
    cuts: tuple[Cut, ...] = ()
    uncut: frozenset[int] = frozenset()
    ranked: frozenset[int] = frozenset()
    lasts: tuple[Last, ...] = ()

    @property
    def has_state(self) -> bool:
        """Whether its result may depend on rows of earlier epochs."""
        return self.kind != "rows" or bool(self.cuts)


def relation_of(shape: Shape, root: Source) -> Relation:
    """The relation that the whole query returns. Raises SqlAt if it cannot be folded."""
    found = _Relations(shape).of(root)
    twice = next((cut for cut in found.cuts if cut.number in found.uncut), None)
    if twice is not None:
        raise shape.at(
            ("with",), "a WITH name with a JOIN or OVER is read both on its own and below a window: write it twice"
        )
    window.check_places(shape)
    specs = [spec for cut in found.cuts for spec in cut.specs]
    return replace(found, cuts=tuple({cut.number: cut.aligned(specs) for cut in found.cuts}.values()))


def columns_read(shape: Shape, root: Source) -> list[tuple[Select, Columns]]:
    """Each SELECT that reads a stream, with the columns of its streams' rows before they are joined."""
    relations = _Relations(shape)
    relations.of(root)
    return relations.read


class GridRoot(NamedTuple):
    """A query that is one SELECT with a GROUP BY of windows whose times are the same for all rows."""

    select: Select
    spec: GroupSpec
    grid: Grid
    relation: Relation


def grid_root(shape: Shape, root: Source) -> GridRoot | None:
    """The query, if it is one SELECT with GROUP BY window(...) of a fixed size and nothing above it."""
    relation = relation_of(shape, root)
    cut = next((cut for cut in relation.cuts if isinstance(root, Select) and cut.number == root.number), None)
    if not isinstance(root, Select) or not isinstance(cut, Group) or cut.spec.grid is None:
        return None
    return GridRoot(root, cut.spec, cut.spec.grid, relation)


@dataclass
class _Relations:
    shape: Shape
    read: list[tuple[Select, Columns]] = field(default_factory=list)
    _known: dict[int, Relation] = field(default_factory=dict)
    _columns: int = 0

    def of(self, source: Source) -> Relation:
        if isinstance(source, Stream):
            time = self.shape.declared[source.name]
            return Relation((Rest(source.name, time.lower() if time else None),))
        if isinstance(source, Lookup):
            return Relation((Fields(),), "lookup")
        if isinstance(source, Union):
            return self._union([self.of(branch) for branch in source.branches])
        if source.number not in self._known:  # WITH: a SELECT that is read more than once is analysed once
            self._known[source.number] = self._select(source, [self.of(below) for below in source.sources])
        return self._known[source.number]

    def _counted(self, columns: Iterable[Column], select: Select | None = None) -> Columns:
        """The columns; raises SqlAt once all SELECTs together have more than MAX_COLUMNS."""
        found = tuple(islice(columns, MAX_COLUMNS + 1 - self._columns))
        self._columns += len(found)
        if self._columns > MAX_COLUMNS:
            problem = (
                f"expected at most {MAX_COLUMNS} columns in all SELECTs together, found more: list the columns "
                "instead of *"
            )
            raise self.shape.at(("*", "select"), problem, select.number if select else None)
        return found

    def _union(self, branches: Sequence[Relation]) -> Relation:
        self._no_totals(branches)
        self._counted(column for branch in branches for column in branch.columns)
        if len({branch.kind == "lookup" for branch in branches}) > 1:
            problem = "UNION ALL of a stream with a lookup table: every epoch would return the table's rows again"
            raise self.shape.at(("union",), problem)
        if len({branch.has_state for branch in branches}) > 1:
            # One branch has the rows of the epoch, the other those of all windows that become final in it.
            raise self.shape.at(("union",), f"UNION ALL of windows and of single rows {NOT_YET}; make two rules")
        columns = united(branch.columns for branch in branches)
        kind: Kind = "windows" if any(branch.kind == "windows" for branch in branches) else branches[0].kind
        return _above(branches, columns, kind)

    def _select(self, select: Select, below: Sequence[Relation]) -> Relation:
        self._counted((column for relation in below for column in relation.columns), select)
        streams = [relation for relation in below if relation.kind != "lookup"]
        self._check_below(select, streams)
        if not streams:
            over.check_places(self.shape, select)
            ranked = frozenset().union({select.number}, *(relation.ranked for relation in below))
            return Relation((Fields(),), "lookup", ranked=ranked)
        sides = zip(select.reads, below, strict=True)
        self.read.append((select, tuple(one for read, side in sides for one in under(side.columns, read.alias))))
        joined = self._joined(select, below)
        own = _above(below, joined.columns, streams[0].kind)
        found = self._windowed(select, own) or self._grouped(select, own, joined) or self._ranked(select, own, joined)
        stars = found.columns if found.kind == own.kind else _timeless(own.columns)
        own_call = found.kind == "windows" and own.kind == "rows"
        found = replace(found, columns=self._counted(_listed(select, found.columns, stars, own_call), select))
        self._check_distinct(select, found)
        return found

    def _no_totals(self, below: Sequence[Relation]) -> None:
        if any(relation.kind == "totals" for relation in below):
            problem = f"GROUP BY without a window below or next to another SELECT {NOT_YET}; {window.HINT}"
            raise self.shape.at(("group",), problem)

    def _no_merging(self, select: Select, below: Sequence[Relation]) -> None:
        """Spark pushes what speaks of windows that merge below their aggregation, to rows not merged yet."""
        groups = (cut for relation in below for cut in relation.cuts if isinstance(cut, Group))
        function = next((group.spec.function for group in groups if group.spec.merges), None)
        if function is None:
            return
        if select.node.args.get("where") is not None:
            problem = f"WHERE above a {function}: Spark would apply it to rows before they are merged; use HAVING"
            raise self.shape.at(("where",), problem, select.number)
        forms = {"joins": "join", "group": "group", "distinct": "distinct"}
        found = [word for arg, word in forms.items() if select.node.args.get(arg)]
        if over.overs_of(select):
            found.append("over")
        if found:
            raise self.shape.at((found[0],), f"{found[0].upper()} above a {function} {NOT_YET}", select.number)

    def _check_below(self, select: Select, below: Sequence[Relation]) -> None:
        self._no_totals(below)
        self._no_merging(select, below)
        if select.grouped and over.overs_of(select):
            problem = "OVER next to GROUP BY: name the result of the GROUP BY, and write OVER in a SELECT above it"
            raise self.shape.at(("over",), problem, select.number)
        if len({relation.kind for relation in below}) > 1:
            problem = (
                "JOIN of windows with single rows: group these rows into windows, too: JOIN (SELECT window(ts, '1 "
                "hour') AS w, ... FROM ...) b ON a.w = b.w"
            )
            raise self.shape.at(("join", ","), problem, select.number)
        names = [read.alias for read in select.reads if read.alias]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled:
            raise self.shape.at((doubled,), f"two relations are called {doubled}: write {doubled} AS another_name")

    def _joined(self, select: Select, below: Sequence[Relation]) -> joins.Joined:
        looked_up = [read for read, relation in zip(select.reads, below, strict=True) if relation.kind == "lookup"]
        streams = [relation for relation in below if relation.kind != "lookup"]
        if looked_up:
            lookupjoins.check_joins(self.shape, select, looked_up)
            others = replace(select, reads=tuple(read for read in select.reads if read not in looked_up))
            return lookupjoins.beside(self._joined(others, streams), looked_up)
        columns = [relation.columns for relation in below]
        if len(below) == 1:
            return joins.Joined(under(columns[0], select.reads[0].alias))
        if below[0].kind == "windows":
            return joins.join_windows(self.shape, select, columns)
        return joins.join_rows(self.shape, select, columns)

    def _windowed(self, select: Select, own: Relation) -> Relation | None:
        """The relation if a call puts its rows into windows; None otherwise."""
        found = window.window_of(self.shape, select, own.columns) if own.kind == "rows" else None
        if found is None:
            return None
        call, spec, reaching = found
        if own.lasts and spec.merges:
            raise self.shape.at((spec.function,), f"{spec.function}(...) above an OVER by rows {NOT_YET}")
        if not select.grouped and over.overs_of(select):
            problem = "OVER next to window(...): name the window in a SELECT below: FROM (SELECT window(...) AS w, ...)"
            raise self.shape.at(("over",), problem, select.number)
        words = self.shape.words
        cut = (
            cut_group(words, select, reaching)
            if select.grouped
            else cut_rows(words, select, f"{call.sql('spark')}.end", reaching)
        )
        columns = (*_timeless(own.columns), Named(spec.function, Part(spec, "window")))
        return replace(_uncut(own), columns=columns, kind="windows", cuts=(cut,))

    def _grouped(self, select: Select, own: Relation, joined: joins.Joined) -> Relation | None:
        """The relation if it groups windows again or makes totals; None without GROUP BY."""
        if not select.grouped:
            return None
        if own.kind == "rows":
            if own.has_state or joined.times:
                problem = f"GROUP BY without a window above a JOIN or OVER {NOT_YET}; {window.HINT}"
                raise self.shape.at(("group",), problem, select.number)
            return replace(own, kind="totals")
        items = select.node.args["group"].expressions
        parts = [part for item in items if isinstance(part := _grouping(select, item, own.columns), Part)]
        if not any(part.identifies_end for part in parts):
            problem = "GROUP BY above windows: expected the window (or its end) in the GROUP BY"
            raise self.shape.at(("group",), problem, select.number)
        return own

    def _ranked(self, select: Select, own: Relation, joined: joins.Joined) -> Relation:
        """The relation with an OVER, a join of rows, or neither of them."""
        words = self.shape.words
        if over.overs_of(select) and own.kind == "windows":
            over.check_in_windows(self.shape, select, own.columns)
            return replace(own, ranked=own.ranked | {select.number})
        if over.overs_of(select):
            reach = over.reach_of(self.shape, select, own.columns)
            time, span = reach.time.sql("spark"), reach.span
            return replace(
                _uncut(own),
                columns=tuple(_reaching(own.columns, reach.time, span)),
                cuts=(cut_rows(words, select, time, RowSpec(span.before_us, span.after_us)),),
                ranked=own.ranked | {select.number} if reach.places else own.ranked,
                lasts=(*own.lasts, *(last_of(words, select, back, time) for back in reach.backs)),
            )
        if joined.times:
            times = tuple((sql, RowSpec(time.before_us, time.after_us)) for sql, time in joined.times)
            lasts = (*own.lasts, all_of(select)) if joined.endless else own.lasts
            return replace(_uncut(own), cuts=(cut_where(words, select, times),), lasts=lasts)
        return own

    def _check_distinct(self, select: Select, found: Relation) -> None:
        distinct = select.node.args.get("distinct")
        if distinct is None:
            return
        parts = [column.meaning for column in found.columns if isinstance(column.meaning, Part)]
        if distinct.args.get("on") is not None or not any(part.identifies_end for part in parts):
            problem = f"DISTINCT over all rows {NOT_YET}; in a window: SELECT DISTINCT window(ts, '1 hour') AS w, ..."
            raise self.shape.at(("distinct",), problem, select.number)


def _above(below: Sequence[Relation], columns: Columns, kind: Kind) -> Relation:
    """The relation above these relations, which keeps their rows as they are."""
    return Relation(
        columns,
        kind,
        tuple(cut for relation in below for cut in relation.cuts),
        frozenset().union(*(relation.uncut for relation in below)),
        frozenset().union(*(relation.ranked for relation in below)),
        tuple(dict.fromkeys(last for relation in below for last in relation.lasts)),
    )


def _uncut(relation: Relation) -> Relation:
    """The relation with its cuts removed, because a SELECT above is cut instead."""
    return replace(relation, cuts=(), uncut=relation.uncut | {cut.number for cut in relation.cuts})


def _timeless(columns: Columns) -> Columns:
    """The columns without event times: among the rows of a window, an event time is an ordinary column."""
    return tuple(replace(column, meaning=None) for column in columns)


def _reaching(columns: Columns, time: exp.Expr, reach: Time) -> Iterator[Column]:
    """The columns; of the event times, only the one that orders the rows keeps a meaning, its reach."""
    relation = time.args["table"].name.lower() if time.args.get("table") else ""
    for column in columns:
        orders = column.known == time.name.lower() and relation in ("", column.relation)
        yield replace(column, meaning=reach if orders else None) if isinstance(column.meaning, Time) else column


def _grouping(select: Select, item: exp.Expr, columns: Columns) -> Meaning:
    """The meaning of a GROUP BY item: a column below, a name of the list, or a position in it."""
    listed = window.listed_as(select, item)
    return meaning_of(item, columns) or (meaning_of(listed, columns) if listed is not None else None)


def _listed(select: Select, columns: Columns, stars: Columns, own_call: bool) -> Iterator[Column]:
    """The columns of the select list; `stars`: those that a `*` stands for. own_call: a window(...) in it is the one
    that puts its rows into windows."""
    for item in select.node.expressions:
        inner = item.unalias()
        if item.is_star:
            yield from under(starred(inner, stars), "")
        else:
            name = item.alias_or_name.lower() if isinstance(item, (exp.Alias, exp.Column, exp.Dot)) else None
            yield Named(name or None, _meaning(inner, columns, own_call))


def _meaning(node: exp.Expr, columns: Columns, own_call: bool) -> Meaning:
    if isinstance(node, exp.Anonymous) and node.name.lower() in WINDOWING:
        if not own_call:  # of windows below, it makes something else
            return None
        return next((c.meaning for c in columns if isinstance(c, Named) and c.name == node.name.lower()), None)
    if isinstance(node, exp.Dot) and isinstance(node.this, exp.Anonymous):
        return part_of(_meaning(node.this, columns, own_call), node.expression.name.lower())
    return meaning_of(node, columns)
