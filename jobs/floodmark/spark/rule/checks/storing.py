"""Check before the first table is created that a rule's tables can hold its results, state and quarantined rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from floodmark.core.rules.sinks.storable import COLLATED, why_not
from floodmark.core.text.tablenames import last_part
from floodmark.errors import WrongColumn
from floodmark.spark.fold.fold import Fold
from floodmark.spark.read.shape import quarantine_schema
from floodmark.spark.rule.generation import Plan


def check_stored(plan: Plan) -> None:
    """Raise WrongColumn for a column whose type Delta lacks; the message says where it is, and what to write."""
    rule = plan.rule.rule
    for address in plan.tables:
        _check(f"sink {last_part(address)}", plan.layout(address).columns)
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
    for part in parts_of(kind):
        if isinstance(part, StringType) and not part.isUTF8BinaryCollation():
            yield COLLATED
        elif not isinstance(part, StructType | ArrayType | MapType):
            yield part.typeName()


def parts_of(kind: DataType) -> Iterator[DataType]:
    """A type, and all types within it."""
    yield kind
    if isinstance(kind, StructType):
        for field in kind:
            yield from parts_of(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from parts_of(kind.elementType)
    elif isinstance(kind, MapType):
        yield from parts_of(kind.keyType)
        yield from parts_of(kind.valueType)
