"""What Spark and Delta raise, as errors of Floodmark's own tree: said once, at the boundary of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from floodmark.core.storefaults import cannot_take, damaged, make_room
from floodmark.errors import Fenced, FloodmarkError, HistoryGone, InputFault, ProcessFault, RunFailed, TableBroken

REWRITTEN = (
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
    "DELTA_SOURCE_IGNORE_DELETE",
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
    "DELTA_LOG_FILE_NOT_FOUND",
)
NAMING = ("Caused by: ", "Checksum error", "org.apache.hadoop.fs.ChecksumException")
INPUT = (
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "ARITHMETIC_OVERFLOW",
    "INVALID_ARRAY_INDEX",
    "CANNOT_PARSE_TIMESTAMP",
    "MALFORMED_RECORD_IN_PARSING",
    "INVALID_VARIANT_CAST",
)


@contextmanager
def explained(rule: str) -> Iterator[None]:
    """Turn foreign errors into Floodmark's; its own pass as they are."""
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
        way = make_room(why) if why else "mend the disk or the store"
        raise RunFailed(f"rule {rule}: {f'{why}: ' if why else ''}{fault}; {way}, then retry") from fault


@contextmanager
def of_table(name: str) -> Iterator[None]:
    """Name the table at which the disk was full or read-only; every other error passes as it is."""
    try:
        yield
    except FloodmarkError:
        raise
    except (PySparkException, Py4JJavaError, OSError, DeltaError) as fault:
        text = "\n".join(_messages(fault.java_exception)) if isinstance(fault, Py4JJavaError) else str(fault)
        why = cannot_take(text)
        if why is None:
            raise
        raise RunFailed(f"{name}: {why}, nothing was committed; {make_room(why)}, then retry") from fault


@contextmanager
def of_open_epoch(rule: str, epoch: int) -> Iterator[None]:
    """Where the SQL fails on a row after the epoch's intent, say that no edit reaches that; others pass as they are."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as fault:
        told = _of_spark(rule, fault)
        if not isinstance(told, InputFault):
            raise
        raise InputFault(
            f"{told}. Epoch {epoch} is open, and is finished by the text that it began with: mended SQL takes effect "
            f"only with `floodmark reset {rule}`"
        ) from fault


def _of_spark(rule: str, fault: PySparkException | Py4JJavaError) -> FloodmarkError:
    if isinstance(fault, Py4JJavaError):
        return _sorted(rule, "", "\n".join(_messages(fault.java_exception)))
    return _sorted(rule, fault.getCondition() or "", "\n".join([str(fault).strip(), *_causes(fault)]))


def _causes(fault: PySparkException) -> Iterator[str]:
    """What a fault of the JVM says: its own text leaves out by what it was caused."""
    origin = getattr(fault, "_origin", None)
    return iter(()) if origin is None else _messages(origin)


def _told(text: str) -> str:
    """The line of a long message that names the file and says what is wrong with it."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if "file" in line and line.startswith(NAMING)), lines[0])


def _messages(fault: Any) -> Iterator[str]:
    """What a Java exception and its causes say, the innermost first: that is where the reason stands."""
    cause = fault.getCause()
    if cause is not None:
        yield from _messages(cause)
    yield str(fault.getMessage())


def _sorted(rule: str, condition: str, text: str) -> FloodmarkError:
    of_class = re.search(r"ProcessFault: (.+)", text) or re.search(r"RuleInvalid: (.+ cannot be imported: .+)", text)
    if of_class:
        return ProcessFault(f"rule {rule}: {of_class[1].strip()}")
    line = text.split("\n", 1)[0]
    if any(name in condition or name in text for name in REWRITTEN):
        return HistoryGone(
            f"rule {rule}: a source changed behind the rule: {line}. Floodmark folds what is appended; put the source "
            f"back, or begin anew with `floodmark reset {rule}`"
        )
    why = cannot_take(text)
    if why is not None:
        return RunFailed(f"rule {rule}: {why}: {line}; {make_room(why)}, then retry")
    if damaged(f"{condition} {text}"):
        return TableBroken(
            f"rule {rule}: a file is missing or damaged: {_told(text)}. Put it back from a copy (where a checksum file "
            f"`.NAME.crc` alone is damaged, remove that), or begin anew with `floodmark reset {rule}`"
        )
    if "ConcurrentTransactionException" in text:
        return Fenced(f"rule {rule}: another writer took over this rule's epoch; retry: {line}")
    if any(name in condition or name in text for name in INPUT):
        return InputFault(
            f"rule {rule}: the SQL fails on a row of the input: {line}. Write try_cast, try_divide or a `where` that "
            "leaves such rows out"
        )
    return RunFailed(f"rule {rule}: Spark failed: {line}")
