"""Texts of JSON as rows: one object, or a list of them, from a text's first byte to its last."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.text.ddl import Column as Declared
from floodmark.core.text.ddl import text_of

ROW, CORRUPT = "_floodmark_row", "_floodmark_corrupt"


def read_object(text: Column, columns: tuple[Declared, ...], options: Mapping[str, str]) -> Column:
    """A struct with the object as ROW. See `is_malformed`. `options`: for Spark's reader of JSON."""
    return _read(text, f"STRUCT<{text_of(columns)}>", options)


def read_list(text: Column, columns: tuple[Declared, ...], options: Mapping[str, str]) -> Column:
    """A struct with a list of objects as ROW; a text may be an object alone."""
    is_list = F.startswith(F.ltrim(text), F.lit("["))
    listed = F.when(is_list, text).otherwise(F.concat(F.lit("["), text, F.lit("]")))
    return _read(listed, f"ARRAY<STRUCT<{text_of(columns)}>>", options)


def _read(text: Column, kind: str, options: Mapping[str, str]) -> Column:
    """Spark reads a text up to the end of its first object, so what follows it is seen only within another object."""
    within = F.concat(F.lit(f'{{"{ROW}":'), text, F.lit("}"))
    permissive = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return F.from_json(within, f"{ROW} {kind}, {CORRUPT} STRING", {**options, **permissive})


def is_malformed(read: Column, text: Column) -> Column:
    """Whether a text is none of the schema. Spark replaces bytes that are no UTF-8, so they are looked for here."""
    return read[ROW].isNull() | read[CORRUPT].isNotNull() | ~F.is_valid_utf8(text)
