"""Describes each key of a rule file in one line: for editors, by the JSON Schema, and for the reference.

A key whose field in the model has a description of its own needs none here.
"""

from __future__ import annotations

from typing import Any

# By the name of the model (WrittenRule: the file itself) and the key.
WORDS: dict[str, dict[str, str]] = {
    "WrittenRule": {
        "rule": "the rule's name; must match the file's name",
        "description": "what the rule is for; shown in Airflow",
        "streams": "the rule's sources, by the name that the SQL uses",
        "lookups": "tables that the SQL joins streams with, by name",
        "sql": "one SELECT of Spark SQL over streams and lookups; or `process`",
        "process": "module:Class instead of SQL; the module is in the rules folder or on the Python path",
        "key": "columns that group the rows for a class; only with `process`",
        "unbounded": "whether state may grow with every new key, without a limit",
        "windows": "how windows are stored: as rows or as partial aggregates (slices); default: whichever is cheaper",
        "close_idle_after": "close windows after all streams have been idle for this long",
        "late": "late rows: keep (in the late table), drop (only counted) or {amend: ...} (they update results)",
        "on_error": "a row that cannot be read or is rejected: stop the run, or move the row to the dead table",
        "qos": "0 at most once, 1 at least once, 2 exactly once",
        "epoch": "limits for the input of one epoch; default: all new input; none: see `rebuild`",
        "sinks": "where the results go; each entry is a Delta table, a target or the console",
        "schedule": "when Airflow runs the rule: cron or a preset, {assets: [uri]}, upstream; default: only manually",
        "freshness": "how far results may lag and how many rows may be late before the rule is stale",
        "group": "rules of a group run together in one Spark application",
        "timezone": "IANA time zone of the SQL session and the schedule",
        "spark": "size and settings of the Spark application",
        "airflow": "retries and labels of the rule's DAG",
    },
    "WrittenExpectation": {
        "check": "a condition on one row; the row passes only if it is true",
        "on_fail": "action for a failing row: fail (stop), drop (discard), dead (to the dead table), warn (count it)",
    },
    "WrittenFreshness": {
        "max_lag": "maximum age of the newest processed row, such as 30 minutes",
        "max_late": "maximum share of late rows in the newest run, such as 0.1 %",
        "on_exceed": "warn, or fail: the run keeps its results but exits with code 3",
    },
    "WrittenStream": {
        "rule": "instead of an address: read a sink of this rule, which is in the same folder",
        "sink": "which sink of that rule, if it has several",
        "event_time": "the event-time column; or {name, expr}",
        "lateness": "how far behind the newest event a row may arrive without being late",
        "max_ahead": "rows further ahead of the epoch's clock than this are dead; default: 1 day",
        "idle_after": "after this long without rows, the stream no longer holds back the watermark of the others",
        "where": "a condition; rows that do not match are skipped and counted as filtered",
        "start": "where the first epoch starts: earliest (a snapshot of the newest version, then new rows), latest, "
        "{version} (0: the whole history) or {timestamp}",
        "distinct": "skip rows that duplicate earlier ones",
        "on_rewrite": "a commit that removes or changes rows: stop the run, skip the commit, or correct the results",
        "changes": "read the table's change feed: a row for each row that was inserted, updated or deleted",
        "landing": "copy the stream's rows into a table of the rule's home first; or {keep: DURATION}",
    },
    "WrittenLanding": {
        "keep": "remove landed rows this long after they came, if they are folded; default: they stay",
    },
    "WrittenEventTime": {
        "name": "the column's name in the SQL",
        "expr": "SQL that computes a timestamp from the row's columns",
    },
    "WrittenStart": {
        "version": "a version of the table: read what this and later versions add",
        "timestamp": "ISO 8601; in the rule's timezone if it has no offset: start at the first commit at or after it; "
        "a time to come is waited for",
    },
    "WrittenDistinct": {
        "key": "columns that identify duplicates",
        "within": "maximum event-time distance between duplicates",
    },
    "WrittenLookup": {
        "delta": "address of the table",
        "history": "join with the table as it was at a row's event time: `_valid_from`, `_valid_to`",
    },
    "WrittenAmend": {"amend": "how late a row may be and still update final results"},
    "WrittenEpoch": {
        "max_files": "maximum number of files per stream",
        "max_bytes": "maximum number of bytes per stream; a larger file is read whole",
        "max_rows": "maximum number of rows; not for Delta, which cannot count rows before it reads them",
    },
    "WrittenSink": {
        "name": "the sink's name for rules that read it; default: the last part of its address",
        "qos": "the sink's own guarantee, at most the rule's",
        "key": "key columns for upserts; default: rows are appended",
        "newest": "of two rows with one key, the row with the larger value is kept",
        "delete": "condition; a result that meets it deletes the row with its key",
        "properties": "Delta table properties, such as delta.enableDeletionVectors",
        "columns": "result columns to write, in this order; default: all",
        "partition_by": "columns by which the table is partitioned",
        "cluster_by": "columns by which the table is clustered, at most four; not with `partition_by`",
        "schema": "when results gain a column: add_columns adds it to the table, fail does not",
        "outbox": "limits of the outbox, from which a target outside of the lake gets its rows",
    },
    "WrittenAssets": {
        "assets": "run the rule whenever one of these Airflow assets is updated: URIs, or addresses of sinks"
    },
    "WrittenSpark": {
        "driver_memory": "driver memory, such as 512m or 3g",
        "shuffle_partitions": "number of shuffle partitions",
        "conf": "Spark settings for size, location and speed",
    },
    "WrittenAirflow": {
        "retries": "number of retries after the first attempt",
        "retry_delay": "delay before the first retry; doubles with each retry",
        "max_retry_delay": "maximum delay between retries",
        "timeout": "time limit of one attempt",
        "tags": "tags in Airflow's UI; `floodmark run --tag` selects rules by them",
        "owner": "owner shown in Airflow's UI",
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
