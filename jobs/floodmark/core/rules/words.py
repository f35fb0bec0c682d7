"""Describes each key of a rule file in one line: for editors, by the JSON Schema, and for the reference.

A key whose field in the model has a description of its own needs none here.
"""

from __future__ import annotations

from typing import Any

# By the name of the model (WrittenRule: the file itself) and the key.
WORDS: dict[str, dict[str, str]] = {
    "WrittenRule": {
        "rule": "the rule's name, which is the file's, too",
        "description": "what it is for; shown in Airflow",
        "streams": "the rule's sources, each by the name under which the SQL reads it",
        "lookups": "tables that the SQL joins streams with, each by its name",
        "sql": "one SELECT of Spark SQL over streams and lookups; or `process`",
        "process": "module:Class, in place of the SQL; its module in the folder of rules or on the Python path",
        "key": "the columns by which a class gets its rows; only beside `process`",
        "unbounded": "whether state may grow with every new key, for ever",
        "windows": "how windows are kept: by their rows or by partial aggregates; without it what is cheaper",
        "close_idle_after": "once all streams have been silent for so long, windows close",
        "late": "of late rows: keep sets them apart, drop counts them, {amend: ...} lets them amend results",
        "on_error": "of a row that cannot be read or that the rule rejects: stop, or set it apart",
        "qos": "0 at most once, 1 at least once, 2 exactly once",
        "epoch": "how much of the input one epoch takes; without it all that is new; none: see `rebuild`",
        "sinks": "where the results go, each list entry one table or the console",
        "schedule": "when Airflow runs it: cron or a preset, {assets: [uri]}, upstream; without it only by hand",
        "freshness": "how far results may lag and how many rows may be late before the rule is stale",
        "group": "rules of one group run together, in one Spark application",
        "timezone": "IANA zone of the SQL's session and of the schedule",
        "spark": "size and settings of the Spark application",
        "airflow": "retries and labels of the rule's DAG",
    },
    "WrittenExpectation": {
        "check": "a condition of one row; it meets it only where it is true",
        "on_fail": "of one that does not: fail stops the run, drop leaves it out, dead sets it apart, warn counts it",
    },
    "WrittenFreshness": {
        "max_lag": "how far the newest row folded may lie behind the clock, such as 30 minutes",
        "max_late": "the part of the newest run's rows that may be late, such as 0.1 %",
        "on_exceed": "warn, or fail: the run's results stay, yet it ends with exit code 3",
    },
    "WrittenStream": {
        "rule": "in place of an address: a rule of the same folder whose sink is read",
        "sink": "which sink of that rule, where it has several",
        "event_time": "the column that says when a row happened; or {name, expr}",
        "lateness": "how much later than the newest event a row may come and still count",
        "max_ahead": "a row further beyond the epoch's clock than this is dead; without it 1 day",
        "idle_after": "once silent for so long, the stream does not hold the watermark for the others",
        "where": "a condition; rows for which it is not true are counted as filtered",
        "start": "where the first epoch begins: earliest (all rows of the newest version, as a snapshot, then what is "
        "added), latest, {version} (0: the history) or {timestamp}",
        "distinct": "which rows are duplicates of earlier ones and left out",
    },
    "WrittenEventTime": {
        "name": "the name under which the SQL reads it",
        "expr": "SQL that makes a timestamp of the row's columns",
    },
    "WrittenStart": {
        "version": "a version of the table: what it and later ones add",
        "timestamp": "ISO 8601; without an offset, in the rule's timezone: the first commit not before it",
    },
    "WrittenDistinct": {
        "key": "columns in which duplicates are equal",
        "within": "how far apart in event time duplicates may lie",
    },
    "WrittenLookup": {
        "delta": "address of the table",
        "history": "join by the versions that stood at a row's event time: `_valid_from`, `_valid_to`",
    },
    "WrittenAmend": {"amend": "how late a row may be to take part in results that were final"},
    "WrittenEpoch": {
        "max_files": "files of each stream",
        "max_bytes": "bytes of each stream; a file more than that is taken whole",
        "max_rows": "rows; not for Delta, which cannot count rows before it reads them",
    },
    "WrittenSink": {
        "name": "what rules that read the sink call it; without it the last part of its address",
        "qos": "the sink's own, at most the rule's",
        "key": "result columns by which rows are merged into the table; without it they are added",
        "newest": "of two rows of one key that with the larger value stays",
        "delete": "a result for which it is true takes its key's row away",
        "properties": "of the Delta table, such as delta.enableDeletionVectors",
        "columns": "result columns that the table has, in this order; without it all",
        "partition_by": "columns by which the table is partitioned",
        "cluster_by": "columns by which the table is clustered, at most four; not beside `partition_by`",
        "schema": "when results gain a column: fail keeps the table's columns, add_columns adds it",
    },
    "WrittenAssets": {
        "assets": "the rule runs whenever one of these Airflow assets was written: URIs, or sinks' addresses"
    },
    "WrittenSpark": {
        "driver_memory": "memory of the driver, such as 512m or 3g",
        "shuffle_partitions": "into how many parts a shuffle divides its rows",
        "conf": "Spark settings of size, place and speed",
    },
    "WrittenAirflow": {
        "retries": "tries after the first",
        "retry_delay": "pause before the first retry; each further one is twice as long",
        "max_retry_delay": "the longest pause",
        "timeout": "of one try",
        "tags": "labels in Airflow's UI, and what `floodmark run --tag` goes by",
        "owner": "owner in Airflow's UI",
    },
}


def with_words(schema: dict[str, Any]) -> dict[str, Any]:
    """The same JSON Schema, each key described: by the words above, else by the description of its field."""
    for model, found in (("WrittenRule", schema), *schema["$defs"].items()):
        for key, one in found["properties"].items():
            own = [kind["description"] for kind in (one, *one.get("anyOf", ())) if "description" in kind]
            words = [WORDS[model][key]] if key in WORDS.get(model, {}) else own
            one.update({"description": words[0]} if words else {})
    return schema
