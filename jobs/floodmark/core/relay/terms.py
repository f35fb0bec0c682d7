"""The terms of a target: how its portions are merged, as the rule's text says by which they were written.

The file may say something else by now: an edit that the rule cannot follow, or one that a reset has taken up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from floodmark.core.protocol.places import PREFIX
from floodmark.core.protocol.records.rows import Row
from floodmark.core.rules.model import Qos, Sink
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Refused

WITH_TEXT = ("commit", "intent", "backfill")  # the kinds of row that may have the rule's text


@dataclass(frozen=True)
class Terms:
    """`key`, `newest`, `qos`: the sink's; names of columns in small letters. rebuilt: each run replaces all rows.

    format: how the target has its rows. None: it has one way alone, or an older version has not recorded it.
    """

    key: tuple[str, ...] = ()
    newest: str | None = None
    qos: Qos = 2
    rebuilt: bool = False
    format: str | None = None


def terms_in(text: str | None, table: str) -> Terms | None:
    """Those of a sink, by the ledger's name of it, in a rule's text; None if the text has no such sink."""
    return _by_table(text).get(table) if text else None


@lru_cache(maxsize=16)
def _by_table(text: str) -> Mapping[str, Terms]:
    """Cached, as each intent has the whole text."""
    rule = json.loads(text)
    return {PREFIX + str(sink["address"]): _terms(rule, sink) for sink in rule["sinks"]}


def _terms(rule: Mapping[str, Any], sink: Mapping[str, Any]) -> Terms:
    options = sink.get("options") or {}
    key, newest = tuple(name.lower() for name in sink.get("key", ())), sink.get("newest")
    return Terms(key, newest and newest.lower(), sink.get("qos", 2), rule.get("rebuild", False), options.get("format"))


def terms_by(row: Row, table: str) -> Terms | None:
    """Those that a row of the ledger states; None if it states none."""
    return terms_in(json.loads(row.body).get("rule"), table) if row.kind in WITH_TEXT else None


def terms_at(rows: Iterable[Row], table: str, seq: int) -> Terms | None:
    """Those that hold at row `seq`. rows: all of the ledger, in order."""
    found = (terms_by(row, table) for row in rows if row.seq <= seq)
    return next(iter(reversed([one for one in found if one is not None])), None)


def check_format(sink: Sink, terms: Terms | None) -> None:
    """Raise Refused if the file has another format for a target than that of rows which it still has to get."""
    found = sink.options.get("format")
    if terms is not None and terms.format not in (None, found):
        raise Refused(
            about_sink(
                str(sink.address),
                f"expected `format: {terms.format}`, in which rows were written that it has not got yet, found "
                f"{found}: another format counts from a reset on. Write {terms.format} again, and ship these rows with "
                f"`floodmark relay RULE --target {sink.label}` (`on_error: dead` sets those aside that it refuses); "
                "then edit the file, and reset",
            )
        )


def sink_by(sink: Sink, terms: Terms | None) -> Sink:
    """The sink of the rule file, by these terms. All else (its connection, what it does with refused rows) is the
    file's."""
    if terms is None:
        return sink
    return sink.model_copy(update={"key": terms.key, "newest": terms.newest, "qos": terms.qos})
