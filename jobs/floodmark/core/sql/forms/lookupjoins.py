"""Analyses lookup tables beside streams: a stream's rows look up rows in them and never wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from floodmark.core.sql.forms.joins import Joined, merged, side_of, using
from floodmark.core.sql.tree.columns import Fields
from floodmark.core.sql.tree.shape import Read, Select, Shape
from floodmark.errors import SqlAt

_SIDES = ("inner", "left", "semi", "anti")


def check_joins(shape: Shape, select: Select, looked_up: Sequence[Read]) -> None:
    """Raise SqlAt for a join that would return table rows to which the epoch has no stream row."""
    sides = {read.alias: side_of(read.join) for read in select.reads}
    for read in looked_up:
        if sides[read.alias] not in ("first", *_SIDES):
            raise _refused(shape, select, sides[read.alias], read)
    outer = next((side for side in sides.values() if side not in ("first", "inner")), None)
    if select.reads[0] in looked_up and outer:
        raise _refused(shape, select, outer, select.reads[0])


def _refused(shape: Shape, select: Select, side: str, read: Read) -> SqlAt:
    problem = (
        f"{side.upper()} JOIN with lookup table {read.alias or '(a subquery)'}: every epoch would return the table's "
        "rows again; write FROM stream [LEFT | SEMI | ANTI] JOIN table ON ..."
    )
    return shape.at((side, "join"), problem, select.number)


def beside(joined: Joined, looked_up: Sequence[Read]) -> Joined:
    """The join of the streams, with the tables' columns, which are not known here."""
    shown = [read for read in looked_up if side_of(read.join) not in ("semi", "anti")]
    columns = [*joined.columns, *(Fields(read.alias) for read in shown)]
    for name in (name for read in looked_up for name in using(read.join)):
        columns = merged(columns, name)
    return replace(joined, columns=tuple(columns))
