"""What a rule's SQL is and needs, and the same SQL bounded to the windows that become final."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from floodmark.core.sql.forms.bounds import Cut, Group, Last
from floodmark.core.sql.forms.distinct import Horizon, deduplicated
from floodmark.core.sql.forms.over import tie_breaks
from floodmark.core.sql.forms.relations import Relation, relation_of
from floodmark.core.sql.state.collected import Collected, collected_of
from floodmark.core.sql.state.running import Running, running_of
from floodmark.core.sql.state.tops import Top, ranking_of, top_of
from floodmark.core.sql.tree.expressions import SqlText, check_expression
from floodmark.core.sql.tree.grouping import check_grouped
from floodmark.core.sql.tree.naming import names_of, naming_fault
from floodmark.core.sql.tree.parse import parse, parse_expression
from floodmark.core.sql.tree.shape import Select, Shape, Source, Union
from floodmark.core.sql.windows import Instant, SessionSpec, Spec
from floodmark.core.sql.words.functions import check_functions
from floodmark.core.sql.words.lexis import Word, words_of
from floodmark.errors import SqlAt


@dataclass(frozen=True)
class Query:
    """SQL that can be folded exactly.

    sql: the text, without a closing semicolon. streams and lookups: those it reads, as declared. identifiers: every
    name in it, lower case (a column that is not among them is not read). star: it selects `*`, so every column is read.
    fault: what keeps the result's columns from being a table's, if anything does (a SELECT inside may have any).
    windows: when the results of each part of it that hangs on several rows are final. running: how it folds where a
    GROUP BY has no window; top: where it takes the first rows of each key; collected: where it has windows of rows. A
    query with none of them is stateless. lasts: which rows it looks back to by their place, however long ago they came.
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
    _cuts: tuple[Cut, ...] = field(default=(), repr=False)

    @property
    def stateful(self) -> bool:
        """Whether a result may hang on rows of earlier epochs."""
        return bool(self.windows or self.running or self.top or self.collected)

    def bounded(self, low: int | None, high: int, instant: Instant) -> str:
        """The SQL with only the results that become final between two watermarks (low None: before any).

        The text stays as the rule has it but for the conditions. Raises ValueError for a stateless query.
        """
        if not self.windows:
            raise ValueError("only a windowed query can be bounded")
        text = self.sql
        for cut in sorted(self._cuts, key=lambda cut: -cut.start):  # from the last on: the places before it stay
            text = cut.bounded(text, low, high, instant)
        return text

    @property
    def sessions(self) -> tuple[Group, ...]:
        """Where it groups by sessions."""
        return tuple(cut for cut in self._cuts if isinstance(cut, Group) and isinstance(cut.spec, SessionSpec))


def analyse(
    sql: str,
    streams: Mapping[str, str | None],
    qos: int = 2,
    lookups: Collection[str] = frozenset(),
    distinct: Mapping[str, Horizon] | None = None,
    unbounded: bool = False,
) -> Query:
    """The query, where each rule can be folded exactly; `streams`: name -> event-time column (None: has none).

    distinct: by stream, the columns and the horizon by which it is read without duplicates. unbounded: whether rows may
    be kept for ever. Raises SqlRefused, with place and name of the first thing that is not allowed. What is refused is
    refused at every `qos`: an answer that hangs on row order is wrong at qos 0, too.
    """
    found, shape = _analysed(sql, streams, lookups, unbounded)
    if not distinct or not any(name in distinct for name in found.streams):
        return found
    try:
        whole, _ = _analysed(deduplicated(shape, distinct), streams, lookups, unbounded)
    except SqlAt as fault:
        name = next(name for name in found.streams if name in distinct)
        raise shape.at((name.lower(),), f"over stream {name}, for it is `distinct`: {fault.problem}") from None
    return replace(whole, star=found.star, fault=found.fault)


def _analysed(
    sql: str, streams: Mapping[str, str | None], lookups: Collection[str], unbounded: bool
) -> tuple[Query, Shape]:
    words = words_of(sql)
    shape, tree, source = _shaped(Shape(sql, words, streams, lookups, unbounded))
    check_functions(sql, words, {grouped.number for grouped in shape.groups}, set(_outermost(source)))
    check_grouped(shape)
    star, fault, given = _has_star(tree), naming_fault(shape, source), shape
    collected = collected_of(shape, source)
    if collected is not None:
        read = tuple(name for name in streams if name in shape.read)
        return Query(sql, read, names_in(words), star, (), fault, collected=collected), shape
    relation, top = _folded(shape, source)
    if relation.ranked:
        # The same text as the user's but for the ends of some orders, so it is looked at once more.
        sql = _spliced(sql, tie_breaks(words, relation.ranked))
        words = words_of(sql)
        shape, _, source = _shaped(Shape(sql, words, streams, lookups, unbounded))
        relation, top = _folded(shape, source)
    text = sql[: words[-1].start] + sql[words[-1].end :] if words[-1].text == ";" else sql
    running = running_of(shape, source) if relation.kind == "totals" and top is None else None
    read, looked_up = (tuple(name for name in names if name in shape.read) for names in (streams, lookups))
    specs = tuple(spec for cut in relation.cuts for spec in cut.specs)
    return Query(
        text, read, names_in(words), star, specs, fault, running, top, None, looked_up, relation.lasts, relation.cuts
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
    """The SQL with one more thing to order by at each of these places."""
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

    `clock`: whether it may have the epoch's clock in it.
    """
    words = words_of(sql)
    tree = parse_expression(sql, words)
    check_expression(SqlText(sql, words), tree)
    check_functions(sql, words, frozenset(), {-1} if clock else frozenset())
    if words[-1].text == ";":  # it would end the statement that the expression becomes a part of
        raise words[-1].refuse(sql, "a semicolon in an expression; leave it out")
    calls = [w for i, w in enumerate(words[:-1]) if w.name in ("window", "session_window") and words[i + 1].text == "("]
    if calls:
        raise calls[0].refuse(sql, f"{calls[0].name}(...) belongs in the GROUP BY of the rule's SQL")
    return names_in(words)


def columns_in(sql: str) -> list[str]:
    """The columns that an expression over one row reads, in lower case and in their order. Raises SqlRefused."""
    tree = parse_expression(sql, words_of(sql))
    found = (column for column in tree.find_all(exp.Column, bfs=False) if not _is_argument(column))
    return list(dict.fromkeys(column.parts[0].name.lower() for column in found))


def _is_argument(column: exp.Column) -> bool:
    """Whether it names the argument of a lambda around it."""
    name, above = column.parts[0].name.lower(), column.parent
    while above is not None:
        if isinstance(above, exp.Lambda) and name in {one.name.lower() for one in above.expressions}:
            return True
        above = above.parent
    return False


def output_columns(sql: str, streams: Mapping[str, str | None], lookups: Collection[str]) -> list[str] | None:
    """The columns that a query gives, in lower case; None where its text does not tell all of them."""
    shape = Shape(sql, words_of(sql), streams, lookups, True)
    return names_of(shape.root(parse(sql, shape.words)))


def names_in(words: Sequence[Word]) -> frozenset[str]:
    return frozenset(word.name for word in words if word.kind in ("word", "quoted"))


def _has_star(tree: exp.Expr) -> bool:
    """Whether a `*` stands for columns; that of count(*) does not."""
    for star in tree.find_all(exp.Star):
        parent = star.parent
        if not (isinstance(parent, exp.Anonymous) and parent.name.lower() == "count" and len(parent.expressions) == 1):
            return True
    return False
