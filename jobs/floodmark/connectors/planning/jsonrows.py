"""Texts of JSON as rows: one object, or a list of them, from a text's first byte to its last."""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_hex

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.text.ddl import Column as Declared
from floodmark.core.text.ddl import text_of

CORRUPT = "_floodmark_corrupt"
_READ = f"_floodmark_{token_hex(8)}"  # another name in each process, as a text could close the list and repeat the name


def read_object(text: Column, columns: tuple[Declared, ...], options: Mapping[str, str]) -> Column:
    """What a text of one object is read as: for `found` and `is_malformed`. `options`: for Spark's reader of JSON."""
    return _read(text, f"STRUCT<{text_of(columns)}>", options)


def read_list(text: Column, columns: tuple[Declared, ...], options: Mapping[str, str]) -> Column:
    """The same of a list of objects; a text may be an object alone."""
    is_list = F.startswith(F.ltrim(text), F.lit("["))
    listed = F.when(is_list, text).otherwise(F.concat(F.lit("["), text, F.lit("]")))
    return _read(listed, f"ARRAY<STRUCT<{text_of(columns)}>>", options)


def _read(text: Column, kind: str, options: Mapping[str, str]) -> Column:
    """Read a text as the first of two values of a list, before a null.

    Spark reads a text up to the end of its first value. What follows it is seen only within another value: in a list,
    as further fields (`,"b":2`) would be those of an object; before a null, as a bracket (`]}`) would end the list. So
    only what ends the list by a null itself (`,null]`) is not seen. A mark that no text has would take 14 % longer.
    """
    within = F.concat(F.lit(f'{{"{_READ}":['), text, F.lit(",null]}"))
    permissive = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return F.from_json(within, f"{_READ} ARRAY<{kind}>, {CORRUPT} STRING", {**options, **permissive})


def found(read: Column) -> Column:
    """The object as a struct, or the list of objects; null where a text is none."""
    return F.get(read[_READ], F.lit(0))


def is_malformed(read: Column, text: Column) -> Column:
    """Whether a text is none of the schema. Spark replaces bytes that are no UTF-8, so they are looked for here."""
    is_whole = (F.size(read[_READ]) == 2) & F.get(read[_READ], F.lit(1)).isNull()
    return found(read).isNull() | ~is_whole | read[CORRUPT].isNotNull() | ~F.is_valid_utf8(text)
