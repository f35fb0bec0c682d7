"""Every type of Spark's SQL: values of it at its bounds, and what a rule can do with it.

The documentation's table (docs/reference/types.md) is made of this one, and one test takes all of them through rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# What a column of a type can be, beside being read, kept, set apart, looked up and written: the table's columns.
ROLES = ("key", "newest", "partition_by", "GROUP BY, join", "class: key", "class: column")


@dataclass(frozen=True)
class Kind:
    """`values`: SQL, not null, no two of them equal, the smallest and the largest among them. `cannot`: of ROLES.

    `mild`: values for a partition, where text is a name of folders.
    """

    sql: str
    values: tuple[str, ...]
    cannot: tuple[str, ...] = ()
    mild: tuple[str, ...] = ()
    note: str = ""

    @property
    def orders(self) -> bool:
        """Whether Spark has min and max of it."""
        return "newest" not in self.cannot

    def can(self, role: str) -> bool:
        return role not in self.cannot


YEARS = "in a class, and in `partition_by`, only of the years 1 to 9999"
FLOATING = ("key", "partition_by", "class: key")
NESTED = ("partition_by", "class: key")
UNORDERED = ("key", "newest", "partition_by", "class: key")
INF = ("CAST('-Infinity' AS {0})", "CAST('NaN' AS {0})", "CAST('Infinity' AS {0})", "CAST('-0.0' AS {0})")
KINDS = (
    Kind("BOOLEAN", ("true", "false")),
    Kind("TINYINT", ("0Y", "-128Y", "127Y")),
    Kind("SMALLINT", ("0S", "-32768S", "32767S")),
    Kind("INT", ("0", "-2147483648", "2147483647")),
    Kind("BIGINT", ("0L", "-9223372036854775808L", "9223372036854775807L", "9007199254740993L")),
    Kind(
        "FLOAT",
        (*(one.format("FLOAT") for one in INF), "1.4E-45F", "CAST('3.4028235E38' AS FLOAT)", "0.1F"),
        FLOATING,
        note="-0.0 is 0.0, and all NaN are one",
    ),
    Kind("DOUBLE", (*(one.format("DOUBLE") for one in INF), "4.9E-324D", "1.7E308D", "0.1D"), FLOATING),
    Kind("DECIMAL(9,2)", ("0.00BD", "-9999999.99BD", "9999999.99BD")),
    Kind("DECIMAL(18,0)", ("CAST(0 AS DECIMAL(18,0))", "-999999999999999999BD", "999999999999999999BD")),
    Kind("DECIMAL(38,0)", (f"-{'9' * 38}BD", f"{'9' * 38}BD", "CAST(-128 AS DECIMAL(38,0))")),
    Kind("DECIMAL(38,38)", (f"-0.{'9' * 38}BD", f"0.{'9' * 38}BD", f"0.{'0' * 37}1BD")),
    Kind(
        "STRING",
        ("''", "'a'", "'a '", "'A'", "'żółć 🌊'", "char(0)", "concat('a', char(0))", "repeat('flood', 60)",
         "repeat('z', 32)", "repeat('z', 33)", "concat(repeat('z', 32), CAST(X'ff' AS STRING))",
         "CAST(X'80' AS STRING)", "CAST(X'c3' AS STRING)", "CAST(X'eda080' AS STRING)",
         "CAST(X'f48fbfbf' AS STRING)", "'\ufffd'"),
        mild=("'a'", "'a '", "'A'", "'żółć 🌊'", "'a/b=c%20d'", "'2001-02-03'"),
        note="invalid UTF-8 works, too, except in a class and in `partition_by`",
    ),
    Kind("BINARY", ("X''", "X'00'", "X'80ff'", "X'ffff'"), ("partition_by",)),
    Kind(
        "DATE",
        ("DATE'1970-01-01'", "DATE'0001-01-01'", "DATE'9999-12-31'", "DATE'1582-10-04'", "DATE'1582-10-15'",
         "DATE'-0044-03-15'", "DATE'+10000-01-01'", "date_add(DATE'1970-01-01', 2147483647)"),
        mild=("DATE'1970-01-01'", "DATE'0001-01-01'", "DATE'9999-12-31'"),
        note=YEARS,
    ),
    Kind(
        "TIMESTAMP",
        ("TIMESTAMP'1970-01-01 00:00:00Z'", "TIMESTAMP'0001-01-03 00:00:00Z'", "TIMESTAMP'9999-12-29 23:59:59.999999Z'",
         "TIMESTAMP'1883-11-18 17:00:00.000001Z'", "TIMESTAMP'1969-12-31 23:59:59.999999Z'",
         "TIMESTAMP'2001-10-28 01:30:00.5Z'", "timestamp_micros(-9223372036854775808)",
         "timestamp_micros(9223372036854775807)", "timestamp_micros(-62135596800000001)"),
        mild=("TIMESTAMP'1970-01-01 00:00:00Z'", "TIMESTAMP'2001-10-28 01:30:00.5Z'"),
        note=YEARS,
    ),
    Kind(
        "TIMESTAMP_NTZ",
        ("TIMESTAMP_NTZ'1970-01-01 00:00:00'", "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
         "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'", "TIMESTAMP_NTZ'1582-10-10 00:00:00'",
         "TIMESTAMP_NTZ'-0044-03-15 00:00:00'", "TIMESTAMP_NTZ'+10000-01-01 00:00:00'"),
        mild=("TIMESTAMP_NTZ'1970-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"),
        note=YEARS,
    ),
    Kind(
        "VARIANT",
        ("parse_json('1')", "parse_json('{\"b\": [1.5, null, \"x\"], \"a\": {}}')", "parse_json('null')",
         "to_variant_object(array(TIMESTAMP'2001-02-03 04:05:06Z'))"),
        ("key", "newest", "partition_by", "GROUP BY, join", "class: key", "class: column"),
    ),
    Kind("ARRAY", ("array(1, NULL, -1)", "CAST(array() AS ARRAY<INT>)", "array(CAST(NULL AS INT))"), NESTED),
    Kind("ARRAY of text", ("array('a', NULL)", "array(CAST(X'80' AS STRING))"), NESTED, ("array('a', NULL)",)),
    Kind("ARRAY of DOUBLE", ("array(CAST('NaN' AS DOUBLE), NULL)", "array(0.1D)"), FLOATING),
    Kind(
        "STRUCT",
        ("named_struct('b', 1, 'A', 'x')", "named_struct('b', CAST(NULL AS INT), 'A', CAST(NULL AS STRING))"),
        NESTED,
    ),
    Kind(
        "MAP",
        ("map('a', 1.5BD, 'b', NULL)", "CAST(map() AS MAP<STRING, DECIMAL(2,1)>)"),
        ("key", "newest", "partition_by", "class: key"),
    ),
    Kind(
        "nested in each other",
        ("array(named_struct('m', map(1, array(DATE'2001-02-03')), 's', named_struct('t', DATE'1900-01-01')))",
         "array(NULL, named_struct('m', NULL, 's', NULL))"),
        (*UNORDERED, "class: column"),
        note="a map inside another type has no order",
    ),
    Kind(
        "VARIANT nested",
        ("array(named_struct('v', parse_json('[2]'), 'm', map('k', parse_json('\"x\"'))))",
         "array(NULL, named_struct('v', NULL, 'm', map('k', NULL)))"),
        ("key", "newest", "partition_by", "GROUP BY, join", "class: key", "class: column"),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Refused:
    """A type that no table of Delta's has; `sql`: a value, from the columns `at` and `n`; `instead`: what to write."""

    name: str
    sql: str
    instead: str


REFUSED = (
    Refused("INTERVAL DAY TO SECOND", "at - TIMESTAMP'2000-01-01 00:00:00Z'", "CAST(x AS STRING), or a number"),
    Refused("INTERVAL YEAR TO MONTH", "make_ym_interval(1, CAST(n AS INT))", "CAST(x AS STRING), or a number"),
    Refused("INTERVAL", "make_interval(0, 0, 0, CAST(n AS INT))", "CAST(x AS STRING)"),
    Refused("NULL", "NULL", "CAST(x AS TYPE)"),
    Refused("GEOMETRY", "st_geomfromwkb(CAST(k AS BINARY))", "st_asbinary(x)"),
    Refused("GEOGRAPHY", "st_geogfromwkb(CAST(k AS BINARY))", "st_asbinary(x)"),
)


def page() -> list[str]:
    """The table of the documentation's page, line by line."""
    lines = [f"| type | {' | '.join(ROLES)} | |", "|---" * (len(ROLES) + 2) + "|"]
    for kind in KINDS:
        cells = ["yes" if kind.can(role) else "no" for role in ROLES]
        lines.append(f"| {kind.sql} | {' | '.join(cells)} | {kind.note} |")
    return lines


def refusals() -> list[str]:
    """That of the types which Delta has not."""
    ways = ((one.name, *one.instead.partition(", ")) for one in REFUSED)
    return [
        "| type | write instead |",
        "|---|---|",
        *(f"| {name} | `{sql}`{and_}{more} |" for name, sql, and_, more in ways),
    ]


def source_sql(kinds: Sequence[Kind], rows: int, mild: bool = False) -> str:
    """SQL for so many rows: `id`, `at` (one second apart), and `c0`, `c1`, … of the kinds; in the last row NULL."""

    def value(kind: Kind, row: int) -> str:
        values = kind.mild or kind.values if mild else kind.values
        return values[row % len(values)] if row < rows - 1 else f"CASE WHEN false THEN {values[0]} END"

    selects = (
        f"SELECT {row} AS id, timestamp_seconds(978307200 + {row}) AS at, "
        + ", ".join(f"{value(kind, row)} AS c{i}" for i, kind in enumerate(kinds))
        for row in range(rows)
    )
    return " UNION ALL ".join(selects)


def most(kinds: Sequence[Kind]) -> int:
    """Rows in which each value of each kind comes, and NULL."""
    return max(len(kind.values) for kind in kinds) + 1
