"""Avro's binary values as rows, by Spark's own decoder.

The decoder stops at the end of the record and ignores what follows it. So a value gets an end of 16 bytes, and the
schema a field for it: the end is found in its place only if the record takes up the whole value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.avro.schemas import newest
from floodmark.connectors.avro.widening import widened
from floodmark.connectors.planning.versionrows import java_class

_HEAD = 5  # bytes of Confluent's wire format before the record: 0, and the schema's id
_BYTES = 32  # of a malformed value, in messages


def end_of(value: Column) -> Column:
    """The end that a value gets; no value can have its own within itself."""
    return F.unhex(F.md5(value))


def values_of_avro(value: Column, texts: Mapping[str, str]) -> tuple[Column, Column]:
    """The value as a struct of `row` and `end`, each null if it does not decode; and what is wrong with it then.

    The row's decimals are wide (`avromisfits`).

    texts: schemas by the ids of Confluent's wire format; the only one of plain values, by an empty text.
    """
    if "" in texts:
        return _read(value, value, texts[""], texts[""]), _plain_problem(value)
    id, body = _id(value), F.substring(value, _HEAD + 1, 2**31 - 1)
    read = reduce(
        lambda read, one: F.when(id == int(one), _read(value, body, texts[one], newest(texts))).otherwise(read),
        texts,
        F.lit(None),
    )
    return read, _framed_problem(value, id, texts)


def _read(value: Column, body: Column, written: str, wanted: str) -> Column:
    whole: Any = F.concat(body, end_of(value))
    options = {"mode": "PERMISSIVE", "avroSchema": _with_end(widened(json.loads(wanted)))}
    return _decoded(whole, _with_end(json.loads(written)), options)


def _decoded(value: Any, schema: str, options: Mapping[str, str]) -> Column:
    """Spark's `from_avro` as the expression that it becomes.

    `from_avro` evaluates the map of its options again in each plan, and plans made in parallel from one frame
    evaluate it as one object without a lock: "Duplicate map key", or options without an entry.
    """
    spark = SparkSession.active()
    columns = java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    scala = java_class(spark, "org.apache.spark.api.python.PythonUtils").toScalaMap(dict(options))
    decoder = java_class(spark, "org.apache.spark.sql.avro.AvroDataToCatalyst")
    return Column(columns.column(decoder(columns.expression(value._jc), schema, scala)))


def _with_end(schema: Any) -> str:
    end = {"type": "fixed", "name": "floodmark_end", "size": 16}
    fields = [{"name": "row", "type": schema}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "floodmark_value", "fields": fields})


def _id(value: Column) -> Column:
    """The schema's id; null for a value without one."""
    framed = (F.octet_length(value) > _HEAD - 1) & (F.substring(F.hex(value), 1, 2) == "00")
    return F.when(framed, F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).cast("bigint"))


def _shown(value: Column) -> Column:
    return F.format_string("%d bytes, %s", F.octet_length(value), F.hex(F.substring(value, 1, _BYTES)))


def _plain_problem(value: Column) -> Column:
    hint = F.format_string(
        "expected Avro of the schema, found Confluent's wire format, it seems, with schema id %d: write "
        "`avro_schema: {%d: FILE.avsc}`",
        _id(value), _id(value),
    )  # fmt: skip
    return F.coalesce(
        F.when(_id(value).isNotNull(), hint), F.format_string("expected Avro of the schema, found %s", _shown(value))
    )


def _framed_problem(value: Column, id: Column, texts: Mapping[str, str]) -> Column:
    listed = " or ".join(texts)
    return (
        F.when(id.isNull(), F.format_string(
            "expected Confluent's wire format (0, then the schema's id in 4 bytes), found %s", _shown(value)))
        .when(id.isin([int(one) for one in texts]), F.format_string(
            "expected Avro of schema id %d, found %s", id, _shown(value)))
        .otherwise(F.format_string("expected the schema id " + listed + ", found %d", id))
    )  # fmt: skip
