"""What of a ledger's rows a target has got, up to its position."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.audit.effects.sinktables import Sink, other_sinks
from floodmark.audit.evidence import Row

Id = tuple[int, int]  # a row of a portion: the ledger's row, and the number there
# How a sink's rows are merged, each with what counts where the text does not say it.
TERMS: dict[str, Any] = {"key": [], "newest": None, "qos": 2}


class Undecided(Exception):
    """It cannot be told what the target has to hold."""


@dataclass(frozen=True)
class Portion:
    """What one row of the ledger has for a target: the outbox's commit; the backfill that it ends, if it does. again:
    rows that the target refused, in place of the outbox's; whole: each of these takes its key's place. terms: by TERMS,
    of the text by which it was written."""

    seq: int
    generation: int
    written: Mapping[str, Any] | None
    backfill: Mapping[str, Any] | None
    again: tuple[Id, ...] = ()
    terms: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False


def as_shipped(sink: Sink, shipped: Sequence[Portion]) -> Sink:
    """The sink by the text of what the target has. The newest text may have come with a reset that left its rows."""
    found = [one.terms for one in shipped if one.terms]
    if any(_folded(one) != _folded(found[0]) for one in found):
        raise Undecided(
            "its rows cannot be compared: a reset left them, and has changed `key`, `newest` or `qos` of the sink"
        )
    same = not found or _folded(sink) == _folded(found[0])
    return sink if same else {**sink, **found[0]}


def _folded(terms: Mapping[str, Any]) -> tuple[list[str], str | None, int]:
    """To compare: names of columns have no case, and those of a key no order."""
    key, newest, qos = ({**TERMS, **terms}[name] for name in TERMS)
    return sorted(name.lower() for name in key), newest and newest.lower(), qos


def _terms(table: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Those of the sink in a rule's text; None if the row has no such text."""
    sink = other_sinks(json.loads(body["rule"])["sinks"]).get(table) if body.get("rule") else None
    return None if sink is None else {name: sink[name] for name in TERMS if name in sink}


@dataclass(frozen=True)
class Delivery:
    """What a target has got. portions: since it was emptied last; emptied: by which row of the ledger (0: none).

    behind: portions that it has not got yet; leaving: whether rows leave it before those of one of them come.
    """

    emptied: int
    portions: Sequence[Portion]
    behind: Sequence[Portion]
    leaving: bool


def delivered_by(table: str, rows: Sequence[Row], upto: int) -> Delivery:
    """`upto`: the row of the ledger that the target is at."""
    emptied, found = _portions(table, [one for one in rows if one.seq <= upto])
    later, them = _portions(table, rows)
    behind = [one for one in them if one.seq > upto]
    leaving = later > upto or any(one.backfill for one in behind)
    return Delivery(emptied, found, behind, leaving)


def is_under_way(sink: Sink, delivery: Delivery) -> bool:
    """Whether the target may have a part of what comes after its position. At qos 1, rows come before the position. A
    class is called once for rows that leave, and once more for those that come."""
    if any({**TERMS, **one}["qos"] == 1 for one in (sink, *(one.terms for one in delivery.behind))):
        return delivery.leaving or bool(delivery.behind)
    return delivery.leaving and sink.get("kind") == "python"


def _portions(table: str, rows: Sequence[Row]) -> tuple[int, list[Portion]]:
    """Those of the rows since one that empties the target; and that row, or 0."""
    found, emptied, backfill, terms = list[Portion](), 0, None, dict[str, Any]()
    for row in rows:
        body = json.loads(row.body)
        terms = (_terms(table, body) if row.kind in ("commit", "intent", "backfill") else None) or terms
        backfill = body if row.kind == "backfill" else backfill
        again = body.get("redelivery") if row.kind == "life" else None
        if again is not None and again["target"] == table:
            refused = tuple((seq, number) for seq, number in again["rows"])
            found.append(Portion(row.seq, row.generation, None, None, refused, terms, bool(again.get("whole"))))
        if row.kind not in ("commit", "backfilled"):
            continue
        begins = row.kind == "commit" and row.epoch == 0
        if begins and not body.get("kept_output") and not _stay(table, body):
            found, emptied = [], row.seq
        if row.kind == "backfilled" and backfill is not None and backfill.get("whole"):
            found, emptied = [], row.seq
        written = body["tables"].get(table)
        if written is not None:
            of = backfill if row.kind == "backfilled" else None
            found.append(Portion(row.seq, row.generation, written, of, terms=terms))
    return emptied, found


def _stay(table: str, begun: Mapping[str, Any]) -> bool:
    """Whether the text with which a generation begins has the target keep the rows of the one before."""
    return other_sinks(json.loads(begun["rule"])["sinks"]).get(table, {}).get("on_reset") == "keep"
