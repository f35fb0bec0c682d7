"""Translate errors of Spark and Delta into Floodmark's own, once, at the boundary of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from floodmark.core.datafaults import Cause, causes_in, of_data
from floodmark.core.text.tablenames import about, about_named
from floodmark.errors import (
    Fenced,
    FloodmarkError,
    HistoryGone,
    InputFault,
    ProcessFault,
    Refused,
    RunFailed,
    SourceBroken,
    TableBroken,
)
from floodmark.ledger.delta.storefaults import cannot_take, damaged, make_room, of_client

REWRITTEN = (
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
    "DELTA_SOURCE_IGNORE_DELETE",
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
)
REMOVED = (
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
)
RETYPED = ("DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE", "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING")
OF_FEED = ("DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA", "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE")
GAINED = "DELTA_SCHEMA_CHANGED"
LACKING = "DELTA_CANNOT_RESOLVE_COLUMN"
CONSTRAINT = re.compile(
    r"\[DELTA_(?:VIOLATE_CONSTRAINT|NOT_NULL_CONSTRAINT|EXCEED_CHAR_VARCHAR_LIMIT)\w*\] .*(?:\n - .*)*"
)
OF_CLASS = re.compile(r"ProcessFault: (.+)|RuleInvalid: (.+ cannot be imported: .+)")
OF_KAFKAS_TIME = "overflows when converting to Spark's microsecond-precision TimestampType"
SPARKS = "org.apache.spark.SparkThrowable"
FRAMES = 40  # of a stack to examine: Java's own calls are less deep
NOTHING = "Nothing of the epoch was written"  # some messages already say this
UNKNOWN = "Spark failed"
WORKERS, JAVAS = "thrown from the Python worker", "\n\tat "  # the second begins a line of a stack of Java's
NAMING = ("Caused by: ", "Checksum error", "org.apache.hadoop.fs.ChecksumException")
READING = "while reading file"


@contextmanager
def explained(rule: str) -> Iterator[None]:
    """Turn foreign errors into Floodmark's; its own pass unchanged."""
    try:
        yield
    except FloodmarkError:
        raise
    except (PySparkException, Py4JJavaError) as fault:
        raise _of_spark(rule, fault) from fault
    except (Py4JNetworkError, Py4JError, ConnectionError) as fault:
        raise RunFailed(f"rule {rule}: the connection to Spark's JVM broke ({type(fault).__name__}); retry") from fault
    except (OSError, DeltaError) as fault:
        why = cannot_take(str(fault))
        way = make_room(why) if why else "fix the disk or the store"
        raise RunFailed(f"rule {rule}: {f'{why}: ' if why else ''}{fault}; {way}, then retry") from fault


@contextmanager
def of_table(name: str) -> Iterator[None]:
    """Name the table in errors of a full or read-only disk, a constraint or missing columns; others pass unchanged."""
    try:
        yield
    except FloodmarkError:
        raise
    except (PySparkException, Py4JJavaError, OSError, DeltaError) as fault:
        text = _text(fault)
        why = None if _data(fault) else cannot_take(text)
        if why is not None:
            raise RunFailed(about_named(name, f"{why}, nothing was committed; {make_room(why)}, then retry")) from fault
        if refused := CONSTRAINT.search(text):
            raise _refused_by(name, refused[0]) from fault
        if LACKING in text:
            raise InputFault(
                about_named(
                    name,
                    f"expected rows with the columns of the table, found others: {_first(text)}. A column of a "
                    "source has gained fields since then; start over with `floodmark reset`",
                )
            ) from fault
        raise


def _refused_by(name: str, message_text: str) -> InputFault:
    """The error for a row that violates the table's own constraint, with the row as Delta shows it."""
    shown = " ".join(message_text.split()).rstrip(".")
    return InputFault(
        about_named(
            name,
            f"expected rows that meet the table's own constraint, found another: {shown}. Drop the constraint, "
            "or handle such rows in the rule (`expect`), and run again",
        )
    )


@contextmanager
def of_version(name: str, address: str, version: int) -> Iterator[None]:
    """Name the table in the error for a version that no longer exists; all other errors pass unchanged."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as fault:
        text = _text(fault)
        if not any(sign in text for sign in (*REWRITTEN, *REMOVED)):
            raise
        raise HistoryGone(
            about(
                name,
                address,
                f"expected version {version} of the table, which the epoch reads, but it is gone: "
                f"{_first(text)}. Restore the table's log and files, or start over with `floodmark reset`",
            )
        ) from fault


@contextmanager
def of_new_epoch(rule: str, epoch: int) -> Iterator[None]:
    """If a row makes an epoch fail before its intent, say that nothing is open; other errors pass unchanged."""
    try:
        yield
    except InputFault as fault:
        if NOTHING in str(fault):
            raise
        raise InputFault(f"{fault}. Nothing of epoch {epoch} was written and it is not open") from fault
    except (PySparkException, Py4JJavaError) as fault:
        told = _of_spark(rule, fault)
        if not isinstance(told, InputFault):
            raise
        raise InputFault(
            f"{told}. Nothing of epoch {epoch} was written, and it is not open: fix the SQL or the input, then run "
            "again. If existing state does not allow an edit of the SQL, an `expect` of the stream can exclude such "
            "rows"
        ) from fault


@contextmanager
def of_open_epoch(rule: str, epoch: int) -> Iterator[None]:
    """If an open epoch fails on a row, or for an unknown reason, say that edits do not affect it; others pass."""
    try:
        yield
    except (InputFault, ProcessFault) as fault:
        raise type(fault)(f"{fault}. {_open(rule, epoch)}") from fault
    except (PySparkException, Py4JJavaError) as fault:
        told = _of_spark(rule, fault)
        if isinstance(told, (InputFault, ProcessFault)):
            raise type(told)(f"{told}. {_open(rule, epoch)}") from fault
        if isinstance(told, RunFailed) and UNKNOWN in str(told):
            raise RunFailed(f"{told}. Retry; if it repeats: {_open(rule, epoch)}") from fault
        raise


def _open(rule: str, epoch: int) -> str:
    return (
        f"Epoch {epoch} is open, and always finishes with the version of the rule in the ledger, so editing the file "
        f"does not help. Undo the epoch with `floodmark abandon {rule}`, or start over with `floodmark reset {rule}`"
    )


def _of_spark(rule: str, fault: PySparkException | Py4JJavaError) -> FloodmarkError:
    data = _data(fault)
    if data is not None and OF_KAFKAS_TIME in data.line:
        return SourceBroken(
            f"rule {rule}: expected a record of Kafka with a time in milliseconds, found another: "
            f"{data.line.rstrip('.')}. Neither SQL nor `on_error` can pass it over, because Spark reads the time of "
            "each record. Set `message.timestamp.after.max.ms` at the topic, so that it refuses such records. Then "
            "remove this one with `kafka-delete-records`, which removes those before it, too, and start over with "
            f"`floodmark reset {rule}`"
        )
    if data is not None and OF_CLASS.search(_text(fault)) is None:
        return InputFault(
            f"rule {rule}: the SQL fails on a row of the input: {data.line.rstrip('.')}. Use try_cast, try_divide or "
            "a `where` that excludes such rows"
        )
    condition = "" if isinstance(fault, Py4JJavaError) else fault.getCondition() or ""
    return _sorted(rule, condition, _text(fault))


def concerns_data(fault: PySparkException | Py4JJavaError) -> bool:
    """Whether a row of the input makes Spark fail: the same again, however often it is tried."""
    return _data(fault) is not None


def _data(fault: Exception) -> Cause | None:
    """The cause that concerns a row's data, if the error has one."""
    origin = fault.java_exception if isinstance(fault, Py4JJavaError) else getattr(fault, "_origin", None)
    return of_data(tuple(causes_in(str(fault)) if origin is None else _chain(origin)))


def _chain(fault: Any) -> Iterator[Cause]:
    """A Java exception and its causes."""
    while fault is not None:
        trace = fault.getStackTrace()
        frames = tuple(trace[i].getClassName() for i in range(min(FRAMES, len(trace))))
        kinds = tuple(_kinds(fault.getClass()))
        named = SPARKS in tuple(each.getName() for each in _interfaces(fault.getClass()))
        condition, state = (fault.getCondition(), fault.getSqlState()) if named else (None, None)
        yield Cause(str(fault.getMessage()), kinds, condition or "", state or "", frames)
        fault = fault.getCause()


def _kinds(kind: Any) -> Iterator[str]:
    while kind is not None:
        yield str(kind.getName())
        kind = kind.getSuperclass()


def _interfaces(kind: Any) -> Iterator[Any]:
    while kind is not None:
        found = kind.getInterfaces()
        yield from (found[i] for i in range(len(found)))
        kind = kind.getSuperclass()


def _text(fault: Exception) -> str:
    """All messages of an error and its causes."""
    if isinstance(fault, Py4JJavaError):
        return "\n".join(_messages(fault.java_exception))
    causes = _causes(fault) if isinstance(fault, PySparkException) else ()
    return "\n".join([str(fault).strip(), *causes])


def _first(text: str) -> str:
    """The first line; of an error in a Python worker, with the last line of its traceback, which says what failed."""
    first, _, rest = text.partition("\n")
    if WORKERS not in first:
        return first
    *_, last = rest.split(JAVAS, 1)[0].rstrip().split("\n")
    return f"{first} {last.strip()}"


def _causes(fault: PySparkException) -> Iterator[str]:
    """The messages of the JVM's exception: PySpark's own text leaves out the causes."""
    origin = getattr(fault, "_origin", None)
    return iter(()) if origin is None else _messages(origin)


def _key_line(text: str) -> str:
    """The line of a long message that names the file and its problem, or the two lines that do so together."""
    lines = [line.strip() for line in text.splitlines()]
    told = next((line for line in lines if "file" in line and line.startswith(NAMING)), lines[0])
    named = next((line for line in lines if READING in line), told)
    return told if "file:" in told or named in told else f"{told} ({named})"


def _messages(fault: Any) -> Iterator[str]:
    """The messages of a Java exception and its causes, innermost first, because that one has the reason."""
    cause = fault.getCause()
    if cause is not None:
        yield from _messages(cause)
    yield str(fault.getMessage())


def _sorted(rule: str, condition: str, text: str) -> FloodmarkError:
    of_class = OF_CLASS.search(text)
    if of_class:
        return ProcessFault(f"rule {rule}: {(of_class[1] or of_class[2]).strip()}")
    line = _first(text)
    if any(name in condition or name in text for name in REWRITTEN):
        return HistoryGone(
            f"rule {rule}: existing rows of a source changed: {line}. Say what to do by `on_rewrite: correct` or "
            f"`on_rewrite: skip` at the stream, or start over with `floodmark reset {rule}`"
        )
    if any(name in condition or name in text for name in REMOVED):
        return HistoryGone(
            f"rule {rule}: commits of a source that are still to be read no longer exist: {line}. Restore the table's "
            f"log, or start over with `floodmark reset {rule}`, of a stream with `start: {{version: N}}` at a version "
            "that the log still has. Give the source a longer `delta.logRetentionDuration`"
        )
    if any(name in condition or name in text for name in RETYPED):
        return HistoryGone(
            f"rule {rule}: columns of a source were renamed, dropped or changed in type, and earlier commits cannot "
            f"be read together with them: {line}. Start over with `floodmark reset {rule}`"
        )
    if any(name in condition or name in text for name in OF_FEED):
        return HistoryGone(
            f"rule {rule}: expected a change feed that the present columns of its table can read, found changes from "
            f"before a column was renamed, dropped or changed in type: {line.rstrip('.')}. Start over with `floodmark "
            f"reset {rule}`, which begins with all rows as inserts"
        )
    remedy = of_client(text)
    if remedy is not None:
        return Refused(f"rule {rule}: {remedy}, as docs/deploy.md says ({line})")
    why = cannot_take(text)
    if why is not None:
        return RunFailed(f"rule {rule}: {why}: {line}; {make_room(why)}, then retry")
    if damaged(f"{condition} {text}"):
        return TableBroken(
            f"rule {rule}: a file is missing or damaged: {_key_line(text)}. Restore it from a copy (if only a "
            f"checksum file `.NAME.crc` is damaged, remove that file), or start over with `floodmark reset {rule}`"
        )
    if "ConcurrentTransactionException" in text:
        return Fenced(f"rule {rule}: another writer took over this rule's epoch; retry: {line}")
    if GAINED in condition or GAINED in text:
        return RunFailed(
            f"rule {rule}: the columns of a source changed while it was read: {line} Retry; if it repeats, start "
            f"over with `floodmark reset {rule}`"
        )
    if READING in text:
        line = f"{_key_line(text)}. If the file is damaged, write it again or restore it"
    return RunFailed(f"rule {rule}: {UNKNOWN}: {line}")
