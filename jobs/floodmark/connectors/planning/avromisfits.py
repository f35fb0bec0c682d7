"""Values that Spark's decoder takes, but their columns cannot hold: decimals that are too wide."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.avro.schemas import Node, Part
from floodmark.connectors.avro.widening import NARROW


def may_misfit(node: Node) -> bool:
    """Whether it has decimals that the decoder may cut off."""
    return _is_narrow(node) or any(may_misfit(part.node) for part in node.parts)


def misfit_in(values: Mapping[str, Column], record: Node) -> Column:
    """What is wrong with a row of a record's widened schema; null if nothing is, or there is no row.

    values: by the names of the record's fields.
    """
    checked = [part for part in record.parts if may_misfit(part.node)]
    return F.coalesce(*(F.when(_is_misfit(values[one.name], one.node), F.lit(_problem(one))) for one in checked))


def fitted(value: Column, node: Node) -> Column:
    """A value of the widened schema as one of its column."""
    return value.try_cast(str(node.type)) if may_misfit(node) else value


def _problem(part: Part) -> str:
    return f"expected values of {part.node.type} for {part.name}, found a number of more digits"


def _is_narrow(node: Node) -> bool:
    return node.type.name == "decimal" and node.type.precision <= NARROW


def _is_misfit(value: Column, node: Node) -> Column:
    """Whether a value does not fit; null if nothing in it is wrong, but a null hides something."""
    if node.kind == "record":
        return reduce(or_, (_is_misfit(value[part.name], part.node) for part in node.parts if may_misfit(part.node)))
    if node.kind in ("array", "map"):
        held = node.parts[0].node
        return F.exists(value if node.kind == "array" else F.map_values(value), lambda one: _is_misfit(one, held))
    return value.isNotNull() & value.try_cast(str(node.type)).isNull()
