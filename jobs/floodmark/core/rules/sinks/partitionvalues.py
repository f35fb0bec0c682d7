"""Finds values of `partition_by` columns that a Delta table cannot hold exactly, as SQL over the results.

Spark writes each value as text into the name of a directory, and Delta reads the value back from that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.core.rules.sinks.sinkcolumns import SinkColumns
from floodmark.core.sql.words.lexis import quoted

MOST_BYTES = 255  # the maximum length of a directory's name in local file systems and HDFS
NULL_NAME = "__HIVE_DEFAULT_PARTITION__"  # the directory of NULL
# Characters that Spark writes as three (%XX) in a directory's name.
ESCAPED = "".join(map(chr, range(1, 32))) + "\"#%'*/:=?\\\x7f{[]^"
# Delta writes the year of an era, without its sign; delta-rs opens no table with a year that it cannot read.
_YEARS = {
    "date": ("DATE'0001-01-01'", "DATE'+10000-01-01'"),
    "timestamp": ("TIMESTAMP'0001-01-01 00:00:00Z'", "TIMESTAMP'+10000-01-01 00:00:00Z'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'+10000-01-01 00:00:00'"),
}
# The longest value, in bytes of a path, if it is longer than the name of NULL.
_LONGEST = (("decimal", 41), ("timestamp", 30))


@dataclass(frozen=True)
class Unfit:
    """A kind of value that `column` cannot have. `holds`: SQL, true for such a value; `why`: what is wrong with it."""

    column: str
    holds: str
    why: str


def unfit(column: str, kind: str, in_key: bool = False, any_name: bool = True) -> list[Unfit]:
    """The values that a partition column of a type, as Spark's SQL writes it, cannot hold.

    in_key: the sink identifies rows by it. any_name: this JVM can give files names that are not ASCII.
    """
    if kind == "string":
        return [Unfit(column, holds, why) for holds, why in _texts(column, in_key, any_name)]
    if kind not in _YEARS:
        return []
    value, (first, after) = quoted(column), _YEARS[kind]
    return [Unfit(column, f"({value} < {first} OR {value} >= {after})", "its year is not within 1 to 9999")]


def _texts(column: str, in_key: bool, any_name: bool) -> list[tuple[str, str]]:
    value, named = quoted(column), bytes_in_path(column) + 1
    length = f"octet_length({value})"
    escaped = f"({length} - octet_length(translate({value}, {_literal(ESCAPED)}, '')))"
    found = [
        (f"{value} = '{NULL_NAME}'", "Delta reads this text as NULL"),
        (f"contains({value}, {_literal(chr(0))})", "no path can have the character NUL"),
        (f"NOT is_valid_utf8({value})", "it is not UTF-8, and a path would show other text"),
        (f"{named} + {length} + 2 * {escaped} > {MOST_BYTES}",
         f"its directory, {column}=..., would have a name of more than {MOST_BYTES} bytes"),
    ]  # fmt: skip
    if in_key:
        found.append((f"{value} = ''", "Delta keeps empty text as NULL there, and `key` tells the two apart"))
    if not any_name:
        found.append((f"{length} <> length({value})", "this process names files in ASCII only: start it with "
                                                      "LC_ALL=C.UTF-8"))  # fmt: skip
    return found


def long_name(column: str, kind: str) -> str | None:
    """Why a column of a type other than text cannot name its directories; None if it can."""
    most = MOST_BYTES - 1 - next((size for start, size in _LONGEST if kind.startswith(start)), len(NULL_NAME))
    found = bytes_in_path(column)
    return None if found <= most else f"a name of at most {most} bytes in a path, found {found} of {column}"


def bytes_in_path(text: str) -> int:
    """The number of bytes of the text in a directory's name."""
    return sum(3 if letter in ESCAPED else len(letter.encode()) for letter in text)


def _literal(text: str) -> str:
    """SQL for any text, however the session's parser treats backslashes."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def is_stored(sink_columns: SinkColumns) -> str:
    """SQL for whether a result will be in the sink."""
    if sink_columns.delete is not None:
        return f"NOT coalesce(({sink_columns.delete}\n), false)"
    return "true" if sink_columns.where is None else f"coalesce(({sink_columns.where}\n), false)"


def which(found: Sequence[Unfit], sink_columns: SinkColumns) -> str:
    """SQL for the index in `found` of the first condition that holds for a result that stays; null: none."""
    cases = " ".join(f"WHEN {one.holds} THEN {place}" for place, one in enumerate(found))
    return f"CASE WHEN {is_stored(sink_columns)} THEN CASE {cases} END END"
