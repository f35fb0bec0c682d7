"""Describes a rule's SQL and its state, and bounds the SQL to the windows that become final."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from sqlglot import exp

from floodmark.core.sql.forms.bounds import Cut, Group, Joined, Last
from floodmark.core.sql.forms.distinct import Horizon, deduplicated
from floodmark.core.sql.forms.over import tie_breaks
from floodmark.core.sql.forms.relations import Relation, relation_of
from floodmark.core.sql.state.collected import Collected, collected_of
from floodmark.core.sql.state.running import Running, running_of
from floodmark.core.sql.state.tops import Top, ranking_of, top_of
from floodmark.core.sql.tree.carried import Carried, carried_by
from floodmark.core.sql.tree.expressions import SqlText, check_expression, has_star
from floodmark.core.sql.tree.grouping import check_grouped
from floodmark.core.sql.tree.parse import parse, parse_expression
from floodmark.core.sql.tree.resultnames import names_of, naming_fault
from floodmark.core.sql.tree.shape import Select, Shape, Source, Union
from floodmark.core.sql.windows import Instant, Spec
from floodmark.core.sql.words.function_names import WINDOWING
from floodmark.core.sql.words.functions import TEXTS, check_functions, spelt
from floodmark.core.sql.words.lexis import Word, words_of
from floodmark.errors import SqlAt

_SUFFIXES = "LlSsYyDdFfBb"  # of a number, for its type


@dataclass(frozen=True)
class Query:
    """SQL that can be folded exactly.

    sql: the text, without a closing semicolon. streams and lookups: those it reads, as declared. identifiers: every
    name in it, in lower case; the query reads no other column. star: it selects `*`, so it reads every column. fault:
    why the result's columns cannot be a table's, if they cannot (an inner SELECT may have any columns). windows: when
    the results of each part that depends on several rows become final. running: how a GROUP BY without a window folds.
    top: how a query for the first rows of each key folds. collected: how windows of rows fold. A query with none of
    these is stateless. lasts: earlier rows that it reads by position, however old they are. carried: columns of the
    result that are the stream's own.
    """

    sql: str
    streams: tuple[str, ...]
    identifiers: frozenset[str]
    star: bool
    windows: tuple[Spec, ...]
    fault: SqlAt | None
    running: Running | None = None
    top: Top | None = None
    collected: Collected | None = None
    lookups: tuple[str, ...] = ()
    lasts: tuple[Last, ...] = ()
    carried: Carried = field(default_factory=Carried)
    _cuts: tuple[Cut, ...] = field(default=(), repr=False)

    @property
    def stateful(self) -> bool:
        """Whether a result may depend on rows of earlier epochs."""
        return bool(self.windows or self.running or self.top or self.collected)

    def bounded(self, low: int | None, high: int, instant: Instant) -> str:
        """The SQL, limited to results that become final between two watermarks (low None: since the start).

        Only conditions are added to the rule's text. Raises ValueError for a stateless query.
        """
        if not self.windows:
            raise ValueError("only a windowed query can be bounded")
        text = self.sql
        for cut in sorted(self._cuts, key=lambda cut: -cut.start):  # from the last: earlier offsets stay valid
            text = cut.bounded(text, low, high, instant)
        return text

    @property
    def is_full_join(self) -> bool:
        """Whether rows of it may have no event time, because they come from either side alone."""
        return bool(self.full_joins)

    @property
    def full_joins(self) -> tuple[Joined, ...]:
        """Where a row with a partner becomes final at another time than one without."""
        return tuple(cut for cut in self._cuts if isinstance(cut, Joined) and len(cut.times) > 1)

    @property
    def lone_sessions(self) -> tuple[Group, int] | None:
        """Its sessions, with their gap in microseconds, if they are its only windows and read a stream directly.

        None, too, where rows have gaps of their own, or where it reads lookup tables.
        """
        alone = len(self.windows) == len(self.sessions) == len(self.streams) == 1 and not (self.lookups or self.lasts)
        gap = self.sessions[0].spec.fixed_gap_us if alone and self.sessions[0].direct else None
        return None if gap is None else (self.sessions[0], gap)

    @property
    def sessions(self) -> tuple[Group, ...]:
        """Where it groups by sessions, or other windows that merge."""
        return tuple(cut for cut in self._cuts if isinstance(cut, Group) and cut.spec.merges)


def analyse(
    sql: str,
    streams: Mapping[str, str | None],
    qos: int = 2,
    lookups: Collection[str] = frozenset(),
    distinct: Mapping[str, Horizon] | None = None,
    unbounded: bool = False,
) -> Query:
    """Analyse a query; raises SqlRefused if it cannot be folded exactly.

    streams: name -> event-time column (None: has none). distinct: for each deduplicated stream, its key columns and
    horizon. unbounded: whether state may keep rows for ever. The error has the place and name of the first construct
    that is not allowed. The same constructs are refused at every `qos`: a result that depends on row order is wrong at
    qos 0, too.
    """
    found, shape = _analysed(sql, streams, lookups, unbounded)
    if not distinct or not any(name in distinct for name in found.streams):
        return found
    try:
        whole, _ = _analysed(deduplicated(shape, distinct), streams, lookups, unbounded)
    except SqlAt as fault:
        name = next(name for name in found.streams if name in distinct)
        raise shape.at((name.lower(),), f"over stream {name}, because it is `distinct`: {fault.problem}") from None
    return replace(whole, star=found.star, fault=found.fault)


def _analysed(
    sql: str, streams: Mapping[str, str | None], lookups: Collection[str], unbounded: bool
) -> tuple[Query, Shape]:
    words = words_of(sql)
    shape, tree, source = _shaped(Shape(sql, words, streams, lookups, unbounded))
    check_functions(sql, words, {grouped.number for grouped in shape.groups}, set(_outermost(source)))
    check_grouped(shape)
    star, fault, given = has_star(tree), naming_fault(shape, source), shape
    collected = collected_of(shape, source)
    if collected is not None:
        read = tuple(name for name in streams if name in shape.read)
        return Query(sql, read, names_in(words), star, (), fault, collected=collected), shape
    relation, top = _folded(shape, source)
    if relation.ranked:
        # The text is the user's, with longer ORDER BYs, so it is analysed once more.
        sql = _spliced(sql, tie_breaks(words, relation.ranked))
        words = words_of(sql)
        shape, _, source = _shaped(Shape(sql, words, streams, lookups, unbounded))
        relation, top = _folded(shape, source)
    text = sql[: words[-1].start] + sql[words[-1].end :] if words[-1].text == ";" else sql
    running = running_of(shape, source) if relation.kind == "totals" and top is None else None
    read, looked_up = (tuple(name for name in names if name in shape.read) for names in (streams, lookups))
    specs = tuple(spec for cut in relation.cuts for spec in cut.specs)
    carried = carried_by(source) if top is None else Carried(top.carried)
    return Query(
        text,
        read,
        names_in(words),
        star,
        specs,
        fault,
        running,
        top,
        None,
        looked_up,
        relation.lasts,
        carried,
        relation.cuts,
    ), given


def _folded(shape: Shape, source: Source) -> tuple[Relation, Top | None]:
    ranking = ranking_of(source, shape.declared)
    if ranking is None or not isinstance(source, Select):
        return relation_of(shape, source), None
    return Relation((), "totals", ranked=frozenset({ranking.number})), top_of(shape, source, ranking)


def _shaped(shape: Shape) -> tuple[Shape, exp.Expr, Source]:
    try:
        tree = parse(shape.sql, shape.words)
        return shape, tree, shape.root(tree)
    except RecursionError:
        raise SqlAt("cannot be parsed: it is nested too deeply", 1, 1) from None


def _spliced(sql: str, places: Iterable[int]) -> str:
    """The SQL with `struct(*)` added to the ORDER BY that ends at each of these offsets."""
    for place in sorted(places, reverse=True):
        sql = f"{sql[:place]}, struct(*){sql[place:]}"
    return sql


def _outermost(source: Source) -> Iterator[int]:
    """The numbers of the SELECTs that name the columns of the result."""
    if isinstance(source, Select):
        yield source.number
    for branch in source.branches if isinstance(source, Union) else ():
        yield from _outermost(branch)


def analyse_expression(sql: str, clock: bool = False) -> frozenset[str]:
    """The lower-case names in an expression over one row (`where`, `expr`). Raises SqlRefused as `analyse` does.

    clock: whether the expression may contain the epoch's clock.
    """
    words = words_of(sql)
    tree = parse_expression(sql, words)
    check_expression(SqlText(sql, words), tree)
    check_functions(sql, words, frozenset(), {-1} if clock else frozenset())
    if words[-1].text == ";":  # it would end the statement that contains the expression
        raise words[-1].refuse(sql, "a semicolon in an expression; leave it out")
    calls = [w for i, w in enumerate(words[:-1]) if w.name in WINDOWING and words[i + 1].text == "("]
    if calls:
        raise calls[0].refuse(sql, f"{calls[0].name}(...) belongs in the GROUP BY of the rule's SQL")
    return names_in(words)


def columns_in(sql: str) -> list[str]:
    """The columns that an expression over one row reads, in lower case and in text order. Raises SqlRefused."""
    tree = parse_expression(sql, words_of(sql))
    found = (column for column in tree.find_all(exp.Column, bfs=False) if not _is_argument(column))
    return list(dict.fromkeys(column.parts[0].name.lower() for column in found))


def literals_in(sql: str) -> list[str]:
    """The texts and numbers that an expression names, in text order, as Spark reads them. Raises SqlRefused.

    Texts side by side are one: 'it''s', and 'it' 's'.
    """
    found = list[str]()
    for kind, words in groupby(words_of(sql), lambda word: "text" if word.kind in TEXTS else word.kind):
        if kind == "text":
            found.append("".join(spelt(word, doubled=word.text[0]) for word in words))
        elif kind == "number":
            found += [word.text.rstrip(_SUFFIXES) for word in words]
    return list(dict.fromkeys(found))


def _is_argument(column: exp.Column) -> bool:
    """Whether the column names the argument of an enclosing lambda."""
    name, above = column.parts[0].name.lower(), column.parent
    while above is not None:
        if isinstance(above, exp.Lambda) and name in {one.name.lower() for one in above.expressions}:
            return True
        above = above.parent
    return False


def output_columns(sql: str, streams: Mapping[str, str | None], lookups: Collection[str]) -> list[str] | None:
    """The columns of a query's result, in lower case; None if the text does not show all of them."""
    shape = Shape(sql, words_of(sql), streams, lookups, True)
    return names_of(shape.root(parse(sql, shape.words)))


def names_in(words: Sequence[Word]) -> frozenset[str]:
    return frozenset(word.name for word in words if word.kind in ("word", "quoted"))
