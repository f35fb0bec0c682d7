"""Check column names before the first table is created: the rule's tables and frames must be able to have them.

Names in the rule's text are refused with their line (`core.rules.checks`); this module checks columns of `SELECT *`.
"""

from __future__ import annotations

from collections import Counter

from pyspark.sql.types import DataType, StructType

from floodmark.core.sql.tree.names import CHANGE_FEED, has_feed, of_feed, reserved
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import WrongColumn
from floodmark.ledger.delta import tables
from floodmark.spark.rule.checks.storing import parts_of
from floodmark.spark.rule.generation import Plan


def check_named(plan: Plan) -> None:
    """Raise WrongColumn for a column with a name that no table, or no frame, can have."""
    rule, shape = plan.rule.rule, plan.fold.shape
    for name in shape.streams:
        _refuse_reserved(f"stream {name}", shape.columns(name))
    _refuse_reserved(f"rule {rule}, results", plan.output)
    for field in plan.output:
        _refuse_nested(f"rule {rule}, results: {field.name}", field.dataType)
    for address in plan.tables:
        _refuse_feed(plan, address)


def _refuse_reserved(where: str, columns: StructType) -> None:
    for name, why in reserved(columns.names):
        raise WrongColumn(
            f"{where}: expected no column {name}: {why}. In the SQL, replace * by the columns that it needs, each "
            "under another name (AS), or rename the column in the table"
        )


def _refuse_nested(where: str, kind: DataType) -> None:
    """Refuse fields whose names differ only in case, or are empty: they cannot be read by name."""
    for struct in (part for part in parts_of(kind) if isinstance(part, StructType)):
        doubled = [name for name, count in Counter(map(str.lower, struct.names)).items() if count > 1 or not name]
        if doubled:
            raise WrongColumn(
                f"{where}: expected struct fields whose names differ in more than upper and lower case, found "
                f"{', '.join(struct.names)}: rename one"
            )


def _refuse_feed(plan: Plan, address: str) -> None:
    taken = of_feed(plan.layout(address).columns.names)
    if taken and (has_feed(plan.tables[address].properties) or has_feed(tables.properties_of(address))):
        raise WrongColumn(
            about_sink(
                address,
                f"expected no column {taken[0]} with {CHANGE_FEED}, because the table's change feed adds "
                "one of that name; rename it in the SQL, with AS",
            )
        )
