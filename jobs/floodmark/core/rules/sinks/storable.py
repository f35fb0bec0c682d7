"""Lists types that Spark's SQL has and a Delta table does not, and what to write instead."""

from __future__ import annotations

COLLATED = "string collate"
_AS_TEXT = "CAST({} AS STRING)"
# By PySpark's name of the type. Delta's own writer refuses them, and no other reader knows them.
WAYS = {
    "daytimeinterval": f"{_AS_TEXT}, or a number, such as unix_micros(b) - unix_micros(a)",
    "yearmonthinterval": f"{_AS_TEXT}, or a number, such as months_between(b, a)",
    "interval": _AS_TEXT,
    "time": _AS_TEXT,
    "void": "CAST({} AS TYPE), because its type is not known",
    "geometry": "st_asbinary({})",
    "geography": "st_asbinary({})",
    COLLATED: _AS_TEXT,
}


def why_not(column: str, shown: str, kind: str, instead: str = "") -> str | None:
    """Why a Delta table cannot have such a column, and what to do; None if it can.

    shown: its type as Spark's SQL has it. kind: PySpark's name of the part of it that Delta may not have. instead: what
    to do if it is not the SQL's own column.
    """
    if kind not in WAYS:
        return None
    way = instead or f"In the SQL write {WAYS[kind].format(column)}"
    return f"expected types that a Delta table has, found {column} of type {shown}. {way}"
