"""What the columns of a query are, as far as its text tells: event times, windows, or anything else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from floodmark.core.sql.windows import SessionSpec, WindowSpec

GroupSpec = WindowSpec | SessionSpec
WINDOWS = ("window", "session_window")  # the functions, and how Spark names the columns that they give


@dataclass(frozen=True)
class Time:
    """An event time. What the row hangs on lies, in event time, at most so many microseconds before and after it."""

    before_us: int = 0
    after_us: int = 0


@dataclass(frozen=True)
class Part:
    """Says which window the row is of: the window itself, its start or its end."""

    spec: GroupSpec
    name: str

    @property
    def tells_end(self) -> bool:
        """Whether rows that are equal in it are of windows with one end."""
        return self.name in ("window", "end") or isinstance(self.spec, WindowSpec)


Meaning = Time | Part | None


@dataclass(frozen=True)
class Named:
    """A column by its lower-case name (None: Spark makes one up) and its relation's; `merged`: USING has joined it."""

    name: str | None
    meaning: Meaning
    relation: str = ""
    merged: bool = False

    @property
    def known(self) -> str | None:
        """The name of the column whose meaning this is."""
        return self.name


@dataclass(frozen=True)
class Rest:
    """All columns of a stream (it is not known here which), but those hidden."""

    stream: str
    time: str | None
    meaning: Meaning = Time()
    hidden: frozenset[str] = frozenset()
    relation: str = ""

    @property
    def known(self) -> str | None:
        """The name of the column whose meaning this is."""
        return self.time


@dataclass(frozen=True)
class Fields:
    """The fields of a struct (`s.*`): not known here how many, nor their names; a name given twice Spark refuses."""

    relation: str = ""
    meaning: Meaning = None
    known: None = None


Column = Named | Rest | Fields
Columns = tuple[Column, ...]


def under(columns: Columns, relation: str) -> Columns:
    """The same columns as those of a relation with this name."""
    return tuple(replace(column, relation=relation) for column in columns)


def lookup(columns: Columns, name: str, relation: str = "") -> Meaning:
    """What the one column of this name is; None where there are several, or none that is known."""
    named = [c for c in columns if isinstance(c, Named) and c.name == name and _reachable(c, relation)]
    rests = [
        c for c in columns if isinstance(c, Rest) and c.time == name and name not in c.hidden
        and relation in ("", c.relation)
    ]  # fmt: skip
    found: list[Column] = [*named, *rests]
    return found[0].meaning if len(found) == 1 else None


def _reachable(column: Named, relation: str) -> bool:
    return column.relation == relation if relation else not column.merged


def meaning_of(node: exp.Expr, columns: Columns) -> Meaning:
    """What an expression over these columns is, where it only passes one on."""
    if isinstance(node, exp.Paren):
        return meaning_of(node.this, columns)
    if isinstance(node, exp.Dot):  # a field of something that is not a name
        return part_of(meaning_of(node.this, columns), node.expression.name.lower())
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    name, table = node.name.lower(), node.table.lower()
    if node.args.get("db"):
        return part_of(lookup(columns, table, node.args["db"].name.lower()), name)
    found = lookup(columns, name, table)
    return found if found or not table else part_of(lookup(columns, table), name)


def names_column(node: exp.Expr, relation: str) -> bool:
    """Whether it is a plain column of the relation, not a field of a struct."""
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or node.args.get("db"):
        return False
    return node.table.lower() in ("", relation)


def part_of(meaning: Meaning, field: str) -> Meaning:
    """What a field of a column is: of a window, its start or end."""
    if isinstance(meaning, Part) and meaning.name == "window" and field in ("start", "end"):
        return Part(meaning.spec, field)
    return None


def united(branches: Iterable[Columns]) -> Columns:
    """UNION ALL goes by position, and positions are known up to the first `*` over different streams."""
    first, *others = branches
    columns = first
    for other in others:
        columns = tuple(_both(columns, other))
    return columns


def _both(left: Columns, right: Columns) -> Iterator[Column]:
    for a, b in zip(left, right, strict=False):
        if isinstance(a, Named) and isinstance(b, Named):
            yield Named(a.name, _common(a.meaning, b.meaning))
        elif isinstance(a, Rest) and a == b:
            yield a
        else:
            return


def _common(a: Meaning, b: Meaning) -> Meaning:
    if isinstance(a, Time) and isinstance(b, Time):
        return Time(max(a.before_us, b.before_us), max(a.after_us, b.after_us))
    return a if a == b else None


def starred(star: exp.Expr, columns: Columns) -> Columns:
    """The columns that a `*` of the select list stands for."""
    inner = star.this if isinstance(star, exp.Column) else star
    relation = star.table.lower() if isinstance(star, exp.Column) else ""
    if relation and not any(column.relation == relation for column in columns):
        return (Fields(),)
    hidden = frozenset(column.name.lower() for column in inner.args.get("except_") or [])
    return tuple(_shown(columns, relation, hidden))


def _shown(columns: Columns, relation: str, hidden: frozenset[str]) -> Iterator[Column]:
    for column in columns:
        if isinstance(column, Named):
            if _reachable(column, relation) and column.name not in hidden:
                yield replace(column, merged=False)
        elif relation in ("", column.relation):
            yield replace(column, hidden=column.hidden | hidden) if isinstance(column, Rest) else column
