"""Decides, without Spark, which results a sink takes and how its table is laid out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.core.rules.model import Rule, Sink
from floodmark.core.rules.sinks.upserts import Upsert, column_of, upsert_of
from floodmark.errors import WrongColumn

GENERATION, EPOCH = STAMPS = ("_generation", "_epoch")
QUARANTINE_COLUMNS = (
    "_epoch",
    "_stream",
    "_reason",
    "_source",
)  # columns of late and dead rows beside those of their stream
DELETE_COLUMN = "_floodmark_gone"  # beside the table's columns: whether a result removes the row with its key


def appends_only(properties: Mapping[str, str]) -> str | None:
    """The property by which a Delta table never loses rows, as spelled there; Delta ignores case. None: it has none."""
    return next(
        (name for name, value in properties.items() if (name.lower(), value.lower()) == ("delta.appendonly", "true")),
        None,
    )


def replaces_rows(rule: Rule, sink: Sink) -> bool:
    """Whether runs of the rule take rows of the sink away again."""
    return bool(sink.key) or rule.rebuild or any(one.on_rewrite == "correct" for one in rule.streams.values())


@dataclass(frozen=True)
class SinkColumns:
    """The results that a sink takes.

    columns: of the result, as it names them, in the table's order; `stamps` come after them. where: SQL for the results
    that are taken (None: all). gone: SQL for those that remove the row with their key (None: none). partitions,
    clusters: columns of the table by which it is laid out. nulled: the partitions where empty text becomes NULL.
    adds_columns: columns that the result gains are added to the table.
    """

    columns: tuple[str, ...]
    stamps: tuple[str, ...] = ()
    where: str | None = None
    delete: str | None = None
    partitions: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    adds_columns: bool = False
    nulled: tuple[str, ...] = ()

    def is_all_of(self, result: Sequence[str]) -> bool:
        """Whether it takes such results unchanged."""
        return self.columns == tuple(result) and not (self.stamps or self.where or self.delete or self.partitions)


def sink_columns_of(sink: Sink, result: Sequence[str]) -> SinkColumns:
    """What the sink takes of a result with these columns. Raises WrongColumn if it names one that does not exist."""
    named = {column.lower(): column for column in result}
    columns = tuple(column_of(sink, "columns", name, named) for name in sink.columns) or tuple(result)
    stamps = STAMPS if sink.epoch_columns else ()
    _refuse_stamps(sink, result if stamps else ())
    laid = {column.lower(): column for column in (*columns, *stamps)}
    partitions = tuple(column_of(sink, "partition_by", name, laid) for name in sink.partition_by)
    return SinkColumns(
        columns,
        stamps,
        None if sink.key else sink.where,
        _delete_condition(sink) if sink.key else None,
        partitions,
        tuple(column_of(sink, "cluster_by", name, laid) for name in sink.cluster_by),
        sink.adds_columns,
        _nulled(sink, partitions),
    )


def _nulled(sink: Sink, partitions: Sequence[str]) -> tuple[str, ...]:
    """The partition columns where empty text becomes NULL. In `key`, a result with empty text would delete the row of
    the key with NULL."""
    key = {name.lower() for name in sink.key}
    return tuple(name for name in partitions if name.lower() not in key)


def upsert_into(sink: Sink, sink_columns: SinkColumns, result: Sequence[str]) -> Upsert | None:
    """How results are merged into the sink; None for a sink that is appended to."""
    upsert = upsert_of(sink, result)
    if upsert is None:
        return None
    gone = None if sink_columns.delete is None else DELETE_COLUMN
    return replace(
        upsert, delete=gone, columns=(*sink_columns.columns, *sink_columns.stamps), stamps=sink_columns.stamps
    )


def _refuse_stamps(sink: Sink, result: Sequence[str]) -> None:
    taken = [column for column in result if column.lower() in STAMPS]
    if taken:
        raise WrongColumn(
            f"sink {sink.label}: epoch_columns: expected a result without {' and '.join(taken)}, because the sink "
            f"adds {' and '.join(STAMPS)}; rename it in the SQL"
        )


def _delete_condition(sink: Sink) -> str | None:
    """SQL for results that remove their key's row: those to be deleted and those that `where` excludes."""
    parts = [f"coalesce(({sink.delete}\n), false)"] if sink.delete else []
    parts += [f"NOT coalesce(({sink.where}\n), false)"] if sink.where else []
    return " OR ".join(parts) or None


def grows(rule: Rule) -> bool:
    """Whether columns that its streams gain become columns of its results."""
    return rule.query.star and any(sink.adds_columns for sink in rule.sinks)


def describe_sink(sink: Sink) -> Iterator[str]:
    """What a sink takes and how its table is laid out, in words; nothing for the defaults."""
    if sink.columns:
        yield f"columns {', '.join(sink.columns)}"
    if sink.where and sink.key:
        yield f"only where {sink.where}; any other result deletes the row with its key"
    elif sink.where:
        yield f"only where {sink.where}"
    if sink.epoch_columns:
        yield f"with the numbers of its generation and epoch as {' and '.join(STAMPS)}"
    if sink.partition_by:
        yield f"partitioned by {', '.join(sink.partition_by)} (Delta keeps empty text there as NULL)"
    if sink.cluster_by:
        yield f"clustered by {', '.join(sink.cluster_by)}"
    if sink.adds_columns:
        yield "new result columns are added to the table, and older rows have NULL there"
