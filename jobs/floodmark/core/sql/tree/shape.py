"""Checks which forms of query can be folded, by an allow-list over the syntax tree; refusals have name and place."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from floodmark.core.sql.tree.expressions import SqlText, check_expression
from floodmark.core.sql.tree.refusals import (
    NO_ALIASES,
    REFUSED_ARGS,
    SELECT_ARGS,
    SET_OPERATIONS,
)
from floodmark.core.sql.words.functions import NOT_YET
from floodmark.core.sql.words.lexis import Word

MAX_JOINS = 50  # each is compared with all others to find its bounds: seconds of work
MAX_SELECTS = 2_000  # a WITH query counts once for each read, because it is checked and planned each time


@dataclass(frozen=True)
class Read:
    """A relation that a SELECT reads, with its lower-case name; `join`: how it is joined to those before it, if any."""

    source: Source
    alias: str
    join: exp.Join | None = None


@dataclass(frozen=True)
class Select:
    """One SELECT of the query, with its number in text order."""

    node: exp.Select
    number: int
    reads: tuple[Read, ...]

    @property
    def grouped(self) -> bool:
        return self.node.args.get("group") is not None

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(read.source for read in self.reads)


@dataclass(frozen=True)
class Union:
    """UNION ALL of two or more queries."""

    branches: tuple[Source, ...]


@dataclass(frozen=True)
class Stream:
    """A stream, in its declared spelling."""

    name: str


@dataclass(frozen=True)
class Lookup:
    """A lookup table: in one epoch, the rows of one version."""

    name: str


Source = Select | Union | Stream | Lookup


@dataclass
class Shape(SqlText):
    """Walks the tree once and refuses what is not allowed; after `root()`, holds what it found.

    unbounded: whether state may keep rows for ever. read: names of tables. places: each read of a stream in the text:
    start, end, its name, and whether it has an alias.
    """

    declared: Mapping[str, str | None]
    lookups: Collection[str] = ()
    unbounded: bool = False
    read: set[str] = field(default_factory=set)
    places: list[tuple[int, int, str, bool]] = field(default_factory=list)
    groups: list[Select] = field(default_factory=list)
    _ctes: dict[str, Source] = field(default_factory=dict)
    _uses: dict[str, int] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _count: int = 0
    _size: int = 0

    def root(self, tree: exp.Expr) -> Source:
        """The query's structure. Raises SqlAt for the first form that is not allowed."""
        while isinstance(tree, exp.Subquery) and not tree.args.get("with_"):
            self._only(tree, {"this", "alias"}, self._count)
            tree = tree.this
        self._few_joins(tree)
        self._with(tree.args.get("with_"))
        source = self._query(tree, top=True)
        for name, uses in self._uses.items():
            if uses == 0:
                raise self.at((name,), f"WITH {name}: it is never read; remove it")
        if self._count != sum(1 for i in range(len(self.words)) if self._is_select(i)):
            raise self.at(("select",), "a SELECT where none is allowed")
        return source

    @property
    def looked_up(self) -> set[str]:
        """The lookup tables that it reads."""
        return self.read.intersection(self.lookups)

    def _few_joins(self, tree: exp.Expr) -> None:
        joins = sum(1 for _ in tree.find_all(exp.Join))  # a comma between relations counts as a join
        if joins > MAX_JOINS:
            raise self.at(("join", ","), f"expected at most {MAX_JOINS} joins, found {joins}")

    def _is_select(self, i: int) -> bool:
        word, before = self.words[i], self.words[i - 1].name if i else ""
        return word.kind == "word" and word.name == "select" and before not in (".", "as")

    def _with(self, node: exp.Expr | None) -> None:
        if node is None:
            return
        if node.args.get("recursive"):
            raise self.at(("recursive",), f"WITH RECURSIVE {NOT_YET}")
        for cte in node.expressions:
            self._cte(cte)

    def _cte(self, cte: exp.Expr) -> None:
        name = cte.alias.lower()
        self._only(cte, {"this", "alias"}, self._count)
        self._no_columns(cte.args.get("alias"))
        if self._declared(name):
            raise self.at((name,), f"WITH {cte.alias}: a stream or lookup has this name; choose another")
        if name in self._ctes:
            raise self.at((name,), f"WITH {cte.alias}: it is defined twice; choose another name")
        if name in NO_ALIASES:
            raise self.at((name,), f"{cte.alias} as the name of a relation is not allowed")
        before = self._size
        self._ctes[name] = self._query(cte.this)
        self._uses[name] = 0
        self._sizes[name], self._size = self._size - before, before

    def _query(self, node: exp.Expr, top: bool = False) -> Source:
        if node.args.get("with_") and not top:
            raise self.at(("with",), "WITH inside a query: put it at the start of the SQL")
        if isinstance(node, exp.Subquery):
            self._only(node, {"this", "alias"}, self._count)
            return self._query(node.this)
        if isinstance(node, exp.SetOperation):
            return self._union(node)
        if isinstance(node, exp.Select):
            return self._select(node)
        raise self.at(("from",), f"expected a SELECT, found {node.key.upper()}", self._count)

    def _union(self, node: exp.SetOperation) -> Union:
        names, problem = SET_OPERATIONS.get(type(node), (("union",), "this set operation is not allowed"))
        self._only(node, {"with_", "this", "expression", "distinct"}, None)
        if not isinstance(node, exp.Union) or node.args.get("distinct") is not False:
            raise self.at(names, problem)
        return Union((self._query(node.left), self._query(node.right)))

    def _select(self, node: exp.Select) -> Select:
        number = self._count
        self._count += 1
        self._grow(1, number)
        self._only(node, SELECT_ARGS, number)
        if not node.expressions:
            raise self.at(("select",), "a SELECT without columns", number)
        if (node.args.get("distinct") or exp.Distinct()).args.get("on") is not None:
            problem = "DISTINCT ON: Spark has none; write row_number() OVER (PARTITION BY ... ORDER BY ...), and keep 1"
            raise self.at(("on",), problem, number, "select")
        for expression in _roots(node):
            check_expression(self, expression, number)
        select = Select(node, number, tuple(self._reads(node, number)))
        self._group(select)
        self._over(select)
        return select

    def _over(self, select: Select) -> None:
        """Refuse OVER outside of a select list."""
        other = [clause for arg in ("where", "group", "having") if (clause := select.node.args.get(arg)) is not None]
        if any(clause.find(exp.Window) for clause in other):
            raise self.at(
                ("over",), "OVER outside of the select list: name it there, and use its name in a SELECT above"
            )

    def _group(self, select: Select) -> None:
        group, having = select.node.args.get("group"), select.node.args.get("having")
        if group is None:
            if having is not None:
                raise self.at(("having",), f"HAVING without GROUP BY {NOT_YET}", select.number)
            return
        for arg in sorted(set(_set_args(group)) - {"expressions"}):
            name = "GROUPING SETS" if arg == "grouping_sets" else "GROUP BY ALL" if arg == "all" else arg.upper()
            way = (
                ""
                if arg == "all"
                else f" after the list of the GROUP BY; write it in the list: window(...), {name} (...)"
            )
            raise self.at((arg.partition("_")[0],), f"{name} {NOT_YET}{way}", select.number)
        self.groups.append(select)

    def _reads(self, node: exp.Select, number: int) -> Iterator[Read]:
        if node.args.get("from_") is None:
            raise self.at(("select",), "a SELECT without FROM reads no stream", number)
        yield Read(*self._relation(node.args["from_"].this, number))
        joins = node.args.get("joins") or []
        for join in joins:
            self._join(join, len(joins), number)
            yield Read(*self._relation(join.this, number), join)

    def _join(self, join: exp.Join, of: int, number: int) -> None:
        for arg in sorted(set(_set_args(join)) - {"this", "side", "kind", "on", "using"}):
            shown = str(join.args[arg]).upper() if arg == "method" else arg
            raise self.at((shown.lower(), "join"), f"{shown} JOIN is not allowed; write JOIN ... ON", number)
        outer = join.args.get("side") in ("RIGHT", "FULL")
        if outer and of > 1:
            raise self.at((join.args["side"].lower(),), f"{join.args['side']} JOIN next to another JOIN: put one of "
                                                        "them into a subquery", number)  # fmt: skip

    def _relation(self, relation: exp.Expr, number: int) -> tuple[Source, str]:
        alias = relation.args.get("alias")
        if alias is not None:
            self._no_columns(alias)
            if alias.name.lower() in NO_ALIASES:
                raise self.at((alias.name.lower(),), f"{alias.name} as the name of a relation is not allowed", number)
        if isinstance(relation, exp.Table):
            return self._table(relation, number), (relation.alias or relation.name).lower()
        if isinstance(relation, exp.Subquery) and isinstance(relation.this, exp.Query):
            return self._query(relation), relation.alias.lower()
        if isinstance(relation, exp.Subquery):
            raise self.at(("join",), "a JOIN in parentheses: join the relations one after the other", number)
        raise self.at(("from",), f"FROM {relation.key.upper()}: expected a stream, a WITH name or a SELECT", number)

    def _table(self, table: exp.Table, number: int) -> Source:
        shown = ".".join(part.name for part in table.parts) if table.args.get("db") else table.name
        if table.args.get("db"):
            raise self.at(
                (table.parts[0].name.lower(),),
                f"table {shown}: only streams can be read, by their name; "
                "declare it under `streams` or `lookups` with its address, and read it by that name",
                number,
            )
        self._only(table, {"this", "alias"}, number)
        if not isinstance(table.this, exp.Identifier):
            raise self.at(
                ("from",),
                f"FROM {table.sql('spark')}: functions that return several rows are not supported yet",
                number,
            )
        name = table.name.lower()
        self._no_keyword(table.this.meta["start"])
        if name in self._ctes:
            self._uses[name] += 1
            self._grow(self._sizes[name], number)
            return self._ctes[name]
        declared = self._declared(name)
        if declared is None:
            raise self.at((name,), f"table {table.name}: no stream or lookup has this name{self._near(name)}", number)
        self.read.add(declared)
        if declared not in self.declared:
            return Lookup(declared)
        at = table.this.meta
        self.places.append((at["start"], at["end"] + 1, declared, bool(table.alias)))
        return Stream(declared)

    def _no_keyword(self, start: int) -> None:
        """Refuse a relation's name that Spark 4.2 takes for a keyword, and the word after it for the table."""
        at = next((i for i, word in enumerate(self.words) if word.start == start), None)
        if at is not None and _is_keyword(self.words[at : at + 4]):
            problem = "stream before another word: Spark reads it as a keyword; put the name in backquotes, `stream`"
            raise self.words[at].refuse(self.sql, problem)

    def _grow(self, by: int, number: int) -> None:
        self._size += by
        if self._size > MAX_SELECTS:
            problem = f"expected at most {MAX_SELECTS} SELECTs, counting those of WITH wherever they are read"
            raise self.at(("from", "select"), problem, number)

    def _declared(self, name: str) -> str | None:
        return next((known for known in (*self.declared, *self.lookups) if known.lower() == name), None)

    def _near(self, name: str) -> str:
        known = [*self.declared, *self.lookups, *self._ctes]
        near = difflib.get_close_matches(name, known, 1)
        return f"; did you mean {near[0]}?" if near else f"; streams: {', '.join(self.declared)}"

    def _no_columns(self, alias: exp.Expr | None) -> None:
        if alias is not None and alias.args.get("columns"):
            raise self.at((alias.name.lower(),), f"{alias.name}(...): give columns their names in the SELECT (x AS y)")

    def _only(self, node: exp.Expr, allowed: frozenset[str] | set[str], number: int | None) -> None:
        """Refuse every argument of `node` that is set and not among those allowed."""
        for arg in _set_args(node):
            if arg in allowed:
                continue
            if arg == "joins":
                raise self.at(("join",), "a JOIN in parentheses: join the relations one after the other", number)
            names, problem = REFUSED_ARGS.get(
                arg, (("select",), f"this form of {node.key.upper()} ({arg}) is not allowed")
            )
            raise self.at(names, problem, number)


def _is_keyword(words: Sequence[Word]) -> bool:
    """Whether Spark reads the first of these words, a relation, as STREAM, and the next as the relation's name."""
    name, after = words[0], words[1:]
    if name.kind != "word" or name.name != "stream" or not after or after[0].kind not in ("word", "quoted"):
        return False
    if after[0].name == "where" and len(after) == 3 and after[1].text != "(":  # then only as WHERE alias
        return after[2].text in (",", ")", ";") or after[2].name in ("group", "union")
    return after[0].name not in ("group", "join", "on", "union")


def _roots(node: exp.Select) -> Iterator[exp.Expr]:
    yield from node.expressions
    yield from (join.args["on"] for join in node.args.get("joins") or [] if join.args.get("on") is not None)
    for arg in ("where", "group", "having"):
        clause = node.args.get(arg)
        if clause is not None:
            yield from clause.args.get("expressions") or ([clause.this] if clause.args.get("this") else [])


def _set_args(node: exp.Expr) -> dict[str, object]:
    # `distinct=False` of a UNION ALL and empty lists have no meaning.
    return {arg: value for arg, value in node.args.items() if value is not None and value != [] and value is not False}
