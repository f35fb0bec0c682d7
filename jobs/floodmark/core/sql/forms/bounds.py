"""Finds where to add conditions to a rule's SQL that limit it to final results; the text is otherwise unchanged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

from sqlglot import exp

from floodmark.core.sql.forms.lookupjoins import deciding, matching
from floodmark.core.sql.forms.over import Back
from floodmark.core.sql.forms.window import streams_of, window_called
from floodmark.core.sql.tree.columns import names_column
from floodmark.core.sql.tree.names import OURS
from floodmark.core.sql.tree.shape import Select, Stream
from floodmark.core.sql.windows import GroupSpec, Instant, RowSpec, Spec
from floodmark.core.sql.words.lexis import Word, quoted

HIDDEN = OURS


@dataclass(frozen=True)
class Group:
    """A SELECT with a GROUP BY.

    prefix, start, listed, end: offsets into the text of the end of the WITH clause, the start of the SELECT, and the
    ends of its list and GROUP BY. having: the span of the HAVING condition; None without one. streams: those that it
    reads; direct: it reads one, and nothing else. keys: the grouping columns besides the window; None unless it is
    direct and groups by plain columns. decided_by: the lookup tables that may decide which rows a window has.
    """

    number: int
    spec: GroupSpec
    prefix: int
    start: int
    listed: int
    end: int
    having: tuple[int, int] | None
    streams: frozenset[str]
    direct: bool
    keys: tuple[str, ...] | None
    decided_by: frozenset[str]

    @property
    def specs(self) -> tuple[Spec, ...]:
        return (self.spec,)

    def aligned(self, others: Collection[Spec]) -> Self:
        return replace(self, spec=self.spec.aligned(others))

    def bounded(self, sql: str, low: int | None, high: int, instant: Instant) -> str:
        """The whole text, with this SELECT limited to results that become final between two watermarks (low None: any).

        The condition goes into the HAVING, where Spark pushes it below the aggregation if it can.
        """
        condition = self.spec.becoming_final(self.spec.end, low, high, instant)
        start, end = self.having or (self.end, self.end)
        if self.having is not None:
            condition = f"({condition}) AND ({sql[start:end]}\n)"  # it may end in a comment
        keyword = "" if self.having else "\nHAVING"
        return f"{sql[:start]}{keyword} {self.spec.having(condition)}\n{sql[end:]}"

    def open_since(self, sql: str, watermark: int, instant: Instant) -> str:
        """A query of its own: when each session that is not final at `watermark` began, as `since`, and its keys."""
        ours = [f"{self.spec.start} AS {HIDDEN}since"]
        ours += [f"{quoted(key)} AS {HIDDEN}key{i}" for i, key in enumerate(self.keys or ())]
        having = f"HAVING {self.spec.having(f'{self.spec.end} >= {instant(watermark, self.spec.end)}')}"
        return self._alone(sql, ours, having)

    def marked(self, sql: str, time: str, column: str) -> str:
        """A query of its own: when each session began (`since`) and ends (`until`), and the largest values that the
        rows of its stream have in `time` (`last`) and in `column` (`mark`)."""
        found = {"since": self.spec.start, "until": self.spec.end, "last": f"max({time})", "mark": f"max({column})"}
        return self._alone(sql, [f"{value} AS {HIDDEN}{name}" for name, value in found.items()])

    def _alone(self, sql: str, ours: Sequence[str], having: str = "") -> str:
        """A query of these columns of the windows, whatever its own HAVING says."""
        names = ", ".join(one.rpartition(" ")[2] for one in ours)
        # Our columns stand after the rule's own, for a GROUP BY may count those.
        inner = f"{sql[self.start : self.listed]}, {', '.join(ours)} {sql[self.listed : self.end]}\n{having}\n"
        return f"{sql[: self.prefix]} SELECT {names} FROM ({inner})"  # noqa: S608 - all of it is the rule's or ours


@dataclass(frozen=True)
class Rows:
    """A SELECT whose rows are final by `time`, SQL over its input; start, listed, end: as for Group.

    It is wrapped in an outer SELECT, because a condition in its own WHERE would remove rows that its OVERs need.
    """

    number: int
    spec: Spec
    start: int
    listed: int
    end: int
    time: str

    @property
    def specs(self) -> tuple[Spec, ...]:
        return (self.spec,)

    def aligned(self, others: Collection[Spec]) -> Self:
        return replace(self, spec=self.spec.aligned(others))

    def bounded(self, sql: str, low: int | None, high: int, instant: Instant) -> str:
        """The whole text, with this SELECT limited to rows that become final between two watermarks."""
        column = f"{HIDDEN}at"
        inner = f"{sql[self.start : self.listed]}, {self.time} AS {column} {sql[self.listed : self.end]}"
        outer = f"SELECT * EXCEPT ({column}) FROM ({inner}\n)"  # noqa: S608 - all of it is the rule's or ours
        condition = self.spec.becoming_final(column, low, high, instant)
        return f"{sql[: self.start]}{outer} WHERE {condition}\n{sql[self.end :]}"


@dataclass(frozen=True)
class Joined:
    """A SELECT over a join of rows.

    start: the end of its FROM. where: the span of its WHERE condition (None without one). times: the event times by
    which a row is final, as SQL; the second applies if the first is NULL. decided_by: the lookup tables that may decide
    by which of two times a row is final.
    """

    number: int
    times: tuple[tuple[str, RowSpec], ...]
    start: int
    where: tuple[int, int] | None
    decided_by: frozenset[str]

    @property
    def specs(self) -> tuple[Spec, ...]:
        return tuple(spec for _, spec in self.times)

    def aligned(self, others: Collection[Spec]) -> Self:
        return replace(self, times=tuple((time, spec.aligned(others)) for time, spec in self.times))

    def bounded(self, sql: str, low: int | None, high: int, instant: Instant) -> str:
        """The whole text, with this SELECT limited to rows that become final between two watermarks."""
        final = [spec.becoming_final(time, low, high, instant) for time, spec in self.times]
        condition = final[0] if len(final) == 1 else (
            f"CASE WHEN {self.times[0][0]} IS NOT NULL THEN {final[0]} ELSE {final[1]} END"
        )  # fmt: skip
        start, end = self.where or (self.start, self.start)
        if self.where is not None:
            condition = f"({condition}) AND ({sql[start:end]}\n)"  # it may end in a comment
        keyword = "" if self.where else "\nWHERE"
        return f"{sql[:start]}{keyword} {condition}\n{sql[end:]}"


@dataclass(frozen=True)
class Last:
    """A SELECT that looks `rows` rows back, however old they are (None: to the first row).

    keys: the columns of the one stream it reads in which the rows are equal; None if unknown. time: its event time, as
    SQL. source: the span of its FROM and WHERE in the text. filtered: the offset of the WHERE condition, if it has one.
    """

    rows: int | None
    keys: tuple[str, ...] | None
    streams: frozenset[str]
    time: str
    source: tuple[int, int]
    filtered: int | None

    def since(self, sql: str, before: int, instant: Instant) -> str:
        """A separate query: for each key, the time of the row that is `rows` rows back from `before`, as `since`."""
        upper = f"{self.time} < {instant(before, self.time)}"
        start, end = self.source
        source = (
            f"{sql[start : self.filtered]} ({sql[self.filtered : end]}\n) AND {upper}"
            if self.filtered
            else f"{sql[start:end]}\nWHERE {upper}"
        )
        by = [f"{quoted(key)} AS {HIDDEN}key{i}" for i, key in enumerate(self.keys or ())]
        parts = f"PARTITION BY {', '.join(map(quoted, self.keys))} " if self.keys else ""
        place = f"row_number() OVER ({parts}ORDER BY {self.time} DESC) AS {HIDDEN}place"
        inner = f"SELECT {', '.join([*by, f'{self.time} AS {HIDDEN}at', place])} {source}"
        names = "".join(f", {HIDDEN}key{i}" for i in range(len(by)))
        grouped = f" GROUP BY {names[2:]}" if names else ""
        return (
            f"SELECT min({HIDDEN}at) AS {HIDDEN}since{names} FROM ({inner}\n) "  # noqa: S608 - the rule's or ours
            f"WHERE {HIDDEN}place <= {self.rows}{grouped}"
        )


Cut = Group | Rows | Joined


def cut_rows(words: Sequence[Word], select: Select, time: str, spec: Spec) -> Rows:
    """The places in a SELECT whose rows are final by `time`."""
    mine = [word for word in words if word.select == select.number and word.text != ";"]
    listed = [word for word in mine if word.clause == "select"]
    return Rows(select.number, spec, listed[0].start, listed[-1].end, mine[-1].end, time)


def last_of(words: Sequence[Word], select: Select, back: Back, time: str) -> Last:
    """The places in a SELECT with an OVER that looks back by rows."""
    mine = [word for word in words if word.select == select.number and word.text != ";"]
    where = [word for word in mine if word.clause == "where"]
    source = [word for word in mine if word.clause == "from"]
    direct = [type(read) for read in select.sources] == [Stream]
    plain = direct and all(names_column(part, select.reads[0].alias) for part in back.parts)
    return Last(
        back.rows,
        tuple(part.name for part in back.parts) if plain else None,
        frozenset().union(*(streams_of(read) for read in select.sources)),
        time,
        (source[0].start, (where or source)[-1].end),
        where[0].end if where else None,
    )


def all_of(select: Select) -> Last:
    """Every row that a SELECT reads."""
    streams = frozenset().union(*(streams_of(read) for read in select.sources))
    return Last(None, None, streams, "", (0, 0), None)


def cut_where(words: Sequence[Word], select: Select, times: tuple[tuple[str, RowSpec], ...]) -> Joined:
    """The places in a SELECT over a join."""
    mine = [word for word in words if word.select == select.number and word.text != ";"]
    where = [word for word in mine if word.clause == "where"]
    source = [word for word in mine if word.clause == "from"]
    apart = len(times) > 1 and any(spec.after_us for _, spec in times)
    decided_by = matching(select) if apart else frozenset[str]()  # else a row is final at one time, partner or not
    return Joined(select.number, times, source[-1].end, (where[0].end, where[-1].end) if where else None, decided_by)


def cut_group(words: Sequence[Word], grouped: Select, spec: GroupSpec) -> Group:
    """The places in a SELECT with a GROUP BY."""
    mine = [word for word in words if word.select == grouped.number]
    listed = [word for word in mine if word.clause == "select"]
    group = [word for word in mine if word.clause == "group"]
    having = [word for word in mine if word.clause == "having"]
    direct = [type(source) for source in grouped.sources] == [Stream]
    return Group(
        grouped.number,
        spec,
        prefix_of(words),
        listed[0].start,
        listed[-1].end,
        group[-1].end,
        (having[0].end, having[-1].end) if having else None,
        frozenset().union(*(streams_of(source) for source in grouped.sources)),
        direct,
        _keys(grouped) if direct else None,
        deciding(grouped),
    )


def _keys(grouped: Select) -> tuple[str, ...] | None:
    aliases = {item.alias.lower() for item in grouped.node.expressions if isinstance(item, exp.Alias)}
    items = [item for item in grouped.node.args["group"].expressions if window_called(grouped, item) is None]
    plain = all(_is_plain(item, grouped.reads[0].alias, aliases) for item in items)
    return tuple(item.name for item in items) if plain else None


def _is_plain(item: exp.Expr, relation: str, aliases: set[str]) -> bool:
    """Whether the item is a column of the relation: not a field of a struct, nor an alias of the list."""
    if not names_column(item, relation):
        return False
    return bool(item.args.get("table")) or item.name.lower() not in aliases


def prefix_of(words: Sequence[Word]) -> int:
    """The offset at which the WITH clause ends; 0 without one."""
    if words[0].name != "with":
        return 0
    depth = 0
    for i, word in enumerate(words):
        depth += {"(": 1, ")": -1}.get(word.text, 0)
        if depth == 0 and word.text == ")" and words[i + 1].text != "," and words[i + 1].name != "as":
            return word.end
    return 0
