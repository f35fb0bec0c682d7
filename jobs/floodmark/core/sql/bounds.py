"""The places of a rule's SQL at which it is cut to the results that become final. The text stays as the rule has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql.lexis import Word
from floodmark.core.sql.over import time_of
from floodmark.core.sql.shape import Select, Stream
from floodmark.core.sql.window import names_column, streams_of, window_called
from floodmark.core.windows import Instant, OverSpec, SessionSpec, WindowSpec

HIDDEN = "_floodmark_"  # how the names of our own columns begin


@dataclass(frozen=True)
class Group:
    """A SELECT with a GROUP BY: where it begins, where its list and the whole GROUP BY end, and its HAVING's condition.

    Offsets into the text; `having` is None without one. `prefix` ends where what WITH defines for it ends.
    streams: those that it reads. keys: what it groups by besides the window, columns of the one stream that it reads;
    None where it reads anything else, or groups by more than columns.
    """

    spec: WindowSpec | SessionSpec
    prefix: int
    start: int
    listed: int
    end: int
    having: tuple[int, int] | None
    streams: frozenset[str]
    keys: tuple[str, ...] | None

    def bounded(self, sql: str, low: int | None, high: int, instant: Instant) -> str:
        """The whole text, with this SELECT giving only what becomes final between two watermarks (None: before any).

        The condition goes into the HAVING, where Spark pushes it below the aggregation if it can.
        """
        condition = self.spec.becoming_final(low, high, instant)
        start, end = self.having or (self.end, self.end)
        if self.having is not None:
            condition = f"({condition}) AND ({sql[start:end]}\n)"  # it may end in a comment
        keyword = "" if self.having else "\nHAVING"
        return f"{sql[:start]}{keyword} {self.spec.having(condition)}\n{sql[end:]}"

    def open_since(self, sql: str, watermark: int, instant: Instant) -> str:
        """A query of its own: when each session that is not final at `watermark` began, as `since`, and its keys."""
        ours = [f"session_window.start AS {HIDDEN}since"]
        ours += [f"{quoted(key)} AS {HIDDEN}key{i}" for i, key in enumerate(self.keys or ())]
        names = ", ".join(one.rpartition(" ")[2] for one in ours)
        having = f"HAVING {self.spec.having(f'{self.spec.column} >= {instant(watermark, self.spec.column)}')}"
        # Our columns stand after the rule's own, for a GROUP BY may count those.
        inner = f"{sql[self.start : self.listed]}, {', '.join(ours)} {sql[self.listed : self.end]}\n{having}\n"
        return f"{sql[: self.prefix]} SELECT {names} FROM ({inner})"  # noqa: S608 - all of it is the rule's or ours


@dataclass(frozen=True)
class Over:
    """A SELECT with windows that follow each row: where it begins, where its list and the whole of it end.

    `time`: the event time as it is written there.
    """

    spec: OverSpec
    start: int
    listed: int
    end: int
    time: str

    def bounded(self, sql: str, low: int | None, high: int, instant: Instant) -> str:
        """The whole text, with this SELECT giving only the rows that become final between two watermarks."""
        inner = f"{sql[self.start : self.listed]}, {self.time} AS {self.spec.column} {sql[self.listed : self.end]}"
        outer = f"SELECT * EXCEPT ({self.spec.column}) FROM ({inner}\n)"  # noqa: S608 - all of it is the rule's or ours
        return f"{sql[: self.start]}{outer} WHERE {self.spec.becoming_final(low, high, instant)}\n{sql[self.end :]}"


def over_of(words: Sequence[Word], select: Select, spec: OverSpec) -> Over:
    """The places of a SELECT with windows that follow each row."""
    mine = [word for word in words if word.select == select.number and word.text != ";"]
    listed = [word for word in mine if word.clause == "select"]
    return Over(spec, listed[0].start, listed[-1].end, mine[-1].end, time_of(select))


def group_of(words: Sequence[Word], grouped: Select, spec: WindowSpec | SessionSpec) -> Group:
    """The places of a SELECT with a GROUP BY."""
    mine = [word for word in words if word.select == grouped.number]
    listed = [word for word in mine if word.clause == "select"]
    group = [word for word in mine if word.clause == "group"]
    having = [word for word in mine if word.clause == "having"]
    return Group(
        spec,
        prefix_of(words),
        listed[0].start,
        listed[-1].end,
        group[-1].end,
        (having[0].end, having[-1].end) if having else None,
        frozenset(streams_of(grouped.source)),
        _keys(grouped) if isinstance(grouped.source, Stream) else None,
    )


def _keys(grouped: Select) -> tuple[str, ...] | None:
    aliases = {item.alias.lower() for item in grouped.node.expressions if isinstance(item, exp.Alias)}
    items = [item for item in grouped.node.args["group"].expressions if window_called(grouped, item) is None]
    plain = all(_is_plain(item, grouped.alias, aliases) for item in items)
    return tuple(item.name for item in items) if plain else None


def _is_plain(item: exp.Expr, relation: str, aliases: set[str]) -> bool:
    """Whether it is a column of the relation: no field of a struct, no alias of the list."""
    if not names_column(item, relation):
        return False
    return bool(item.args.get("table")) or item.name.lower() not in aliases


def quoted(name: str) -> str:
    """A column's name as SQL."""
    return "`" + name.replace("`", "``") + "`"


def prefix_of(words: Sequence[Word]) -> int:
    """The offset at which the WITH clause ends: 0 without one."""
    if words[0].name != "with":
        return 0
    depth = 0
    for i, word in enumerate(words):
        depth += {"(": 1, ")": -1}.get(word.text, 0)
        if depth == 0 and word.text == ")" and words[i + 1].text != "," and words[i + 1].name != "as":
            return word.end
    return 0
