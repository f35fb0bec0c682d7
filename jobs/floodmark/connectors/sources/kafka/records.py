"""Kafka's records as rows: Spark's own reader, and the columns that the rule declares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.avro.schemas import newest, record_in, schema_of
from floodmark.connectors.planning.avromisfits import fitted, may_misfit, misfit_in
from floodmark.connectors.planning.avrovalues import end_of, values_of_avro
from floodmark.connectors.planning.jsonrows import found, is_malformed, read_object
from floodmark.connectors.ports.source import MALFORMED, SHOWN
from floodmark.connectors.sources.kafka.offsets import Partition, Range
from floodmark.connectors.sources.kafka.options import Kafka
from floodmark.core.sql.words.lexis import quoted

_RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"

_NO_TIME = -1  # Kafka's own word for it, in records of older producers


def records(
    spark: SparkSession, wanted: Mapping[Partition, Range], settings: Mapping[str, str], headers: bool
) -> DataFrame:
    """The records of some ranges, as Spark's reader of Kafka gives them. It fails if one of them is gone."""
    if not wanted:
        with_headers = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>" if headers else ""
        return spark.createDataFrame([], _RECORD + with_headers)
    reader = spark.read.format("kafka").options(**settings).option("failOnDataLoss", "true")
    for option, side in (("startingOffsets", 0), ("endingOffsets", 1)):
        reader = reader.option(option, _by_topic({place: one[side] for place, one in wanted.items()}))
    places: dict[str, list[int]] = {}
    for topic, number in sorted(wanted):
        places.setdefault(topic, []).append(number)
    return reader.option("assign", json.dumps(places)).option("includeHeaders", str(headers).lower()).load()


def _by_topic(offsets: Mapping[Partition, int]) -> str:
    found: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return json.dumps(found)


def decoded(rows: DataFrame, said: Kafka, texts: Mapping[str, str] = {}) -> DataFrame:
    """Records as rows. A value that is nothing of the schema leaves its columns null, and is named in MALFORMED; so is
    a key that is no text.

    texts: of Avro's schemas in files, by id.
    """
    others = [_metadata(one, said).alias(name) for one, name in said.metadata.items()]
    if said.format == "avro":
        return _of_avro(rows, said, texts, others)
    if said.format == "binary":
        return rows.select(F.col("value"), *others)
    text = F.col("value").cast("string")
    if said.format == "text":
        bad = ~F.is_valid_utf8(text)
        malformed = _or_key(F.when(bad, _place(text)), said)
        return rows.select(F.when(~bad, text).alias("value"), *others, malformed.alias(MALFORMED))
    read = rows.withColumn("_read", read_object(text, said.values(), {}))
    values = [found(F.col("_read"))[column.name].alias(column.name) for column in said.values()]
    bad = F.col("value").isNotNull() & is_malformed(F.col("_read"), text)
    return read.select(*values, *others, _or_key(F.when(bad, _place(text)), said).alias(MALFORMED))


def _of_avro(rows: DataFrame, said: Kafka, texts: Mapping[str, str], others: Sequence[Column]) -> DataFrame:
    texts = texts or {"": json.dumps(schema_of(said.values()))}
    read, reason = values_of_avro(F.col("value"), texts)
    found, record = rows.withColumn("_read", read), record_in(newest(texts))
    values = {one.name: F.col(f"_read.row.{quoted(one.name)}") for one in record.type.parts}
    bad = F.col("value").isNotNull() & ~F.equal_null(F.col("_read.end"), end_of(F.col("value")))
    malformed = F.when(bad, _place(reason))
    if may_misfit(record):  # a pass of its own over each row, so it is left out where it finds nothing
        found, misfit = found.withColumn("_misfit", misfit_in(values, record)), F.col("_misfit")
        values = {p.name: F.when(misfit.isNull(), fitted(values[p.name], p.node)) for p in record.parts}
        malformed = malformed.when(misfit.isNotNull(), _place(misfit))
    named = [value.alias(name) for name, value in values.items()]
    return found.select(*named, *others, _or_key(malformed, said).alias(MALFORMED))


def _place(text: Column) -> Column:
    shown = F.substring(F.make_valid_utf8(text), 1, SHOWN)
    return F.format_string("topic %s, partition %d, offset %d: %s", "topic", "partition", "offset", shown)


def _or_key(malformed: Column, said: Kafka) -> Column:
    """The same reason; for a record whose value is fine, that its key is no text."""
    if "key" not in said.metadata:
        return malformed
    key = F.col("key").cast("string")
    return F.coalesce(malformed, F.when(~F.is_valid_utf8(key), _place(F.concat(F.lit("its key is not UTF-8: "), key))))


def _metadata(one: str, said: Kafka) -> Column:
    if one == "timestamp":
        return F.when(F.col(one) != F.timestamp_millis(F.lit(_NO_TIME)), F.col(one))
    if one != "key" or said.format == "binary":
        return F.col(one)
    key = F.col("key").cast("string")
    return F.when(F.is_valid_utf8(key), key)
