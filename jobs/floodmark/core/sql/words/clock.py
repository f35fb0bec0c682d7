"""Replaces `current_timestamp()` in a rule by the epoch's recorded clock, which a retry reads again."""

from __future__ import annotations

from floodmark.core.sql.words.lexis import words_of

CALLS = frozenset({"current_timestamp", "now"})


def at_clock(sql: str, clock: int) -> str:
    """The SQL or expression with each call of the clock replaced by `clock`, microseconds since 1970."""
    if not any(name in sql.lower() for name in CALLS):
        return sql
    words = words_of(sql)
    for i in range(len(words) - 3, -1, -1):  # from the last on, so that earlier offsets stay valid
        if words[i].kind == "word" and words[i].name in CALLS and words[i + 1].text == "(":
            sql = f"{sql[: words[i].start]}timestamp_micros({clock}){sql[words[i + 2].end :]}"
    return sql
