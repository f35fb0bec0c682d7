"""Check before the first table is created that a rule's tables can hold its results, state and quarantined rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from floodmark.core.rules.sinks.storable import COLLATED, why_not
from floodmark.errors import WrongColumn
from floodmark.spark.fold.fold import Fold
from floodmark.spark.read.shape import quarantine_schema
from floodmark.spark.rule.generation import Plan


def check_stored(plan: Plan) -> None:
    """Raise WrongColumn for a column whose type Delta lacks; the message says where it is, and what to write."""
    rule = plan.rule.rule
    for address in plan.tables:
        _check(f"sink {address}", plan.layout(address).columns)
    for table, schema in ({} if plan.rule.rebuild else plan.fold.tables).items():
        said = {name: plan.fold.describe_column(name) for name in schema.names}
        _check(f"rule {rule}: state {table}", schema, plan.fold.instead, said)
    _check(f"rule {rule}: late and dead rows", quarantine_schema(plan.fold.shape), Fold.instead)


def _check(
    where: str, schema: StructType, instead: str = "", spelled: Mapping[str, str] = MappingProxyType({})
) -> None:
    for field in schema:
        name = spelled.get(field.name, field.name)
        for kind in kinds_in(field.dataType):
            why = why_not(name, field.dataType.simpleString(), kind, instead)
            if why is not None:
                raise WrongColumn(f"{where}: {why}")


def kinds_in(kind: DataType) -> Iterator[str]:
    """The names of all types that a type consists of."""
    if isinstance(kind, StructType):
        for field in kind:
            yield from kinds_in(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from kinds_in(kind.elementType)
    elif isinstance(kind, MapType):
        yield from kinds_in(kind.keyType)
        yield from kinds_in(kind.valueType)
    elif isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():
        yield COLLATED
    else:
        yield kind.typeName()
