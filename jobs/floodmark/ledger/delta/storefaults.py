"""Sorts the error texts of a store by what can be done about them. Pure: it reads texts only."""

from __future__ import annotations

import re

FULL, READ_ONLY = "the disk is full", "the file system is read-only"
_CANNOT_TAKE = {
    "No space left on device": FULL,
    "os error 28": FULL,
    "Disk quota exceeded": "the disk quota is used up",
    "os error 122": "the disk quota is used up",
    "Read-only file system": READ_ONLY,
    "os error 30": READ_ONLY,
}
_EXPIRED = "ExpiredToken"  # as AWS calls it; the status is 400
# Errors of a store that may disappear on retry; they say nothing about the file's content.
_PASSING = ("Input/output error", "os error 5)", "Too many open files", "Permission denied", "timed out", "Timeout",
            "Connection re", "SlowDown", "ServiceUnavailable", "Stale file handle", "Host is down",
            "endpoint is not connected", "transport endpoint shutdown", "Cannot allocate memory", "Broken pipe",
            "No route to host", "No locks available", "Network is unreachable", "Remote I/O error", "failed to respond",
            "Unable to execute HTTP request", _EXPIRED, "TokenRefreshRequired", "RequestTimeTooSkewed", "InternalError",
            "Internal Server Error", "403 Forbidden", "AccessDenied", "Status Code: 403", "Status Code: 5",
            "lacked the necessary privileges", "lacked valid authentication")  # fmt: skip
_STORE = re.compile(
    r"Generic (?!LocalFileSystem|DeltaTable)\w+ error(?!: Requested range)"
)  # it begins what a store said
# What delta-rs says of a version that its log does not reach, and of a damaged entry or checkpoint.
_GONE = ("No files in log segment", "LogSegment end version", "Expected contiguous commit files",
         "No table metadata or protocol found", "didn't find any checkpoints", "Invalid Checkpoint",
         "Invalid table version", "No such file or directory", "not found", "Json error", "Arrow error",
         "Parquet error", "Requested range was invalid")  # fmt: skip
# FAILED_READ_FILE alone is not one: an unreachable store causes it, too.
_DAMAGED = ("Checksum error", "ChecksumException", "Not a checksum file", "is not a Parquet file",
            "Read past End of File", "could not read page", "FAILED_TO_UNCOMPRESS",
            "can not read class org.apache.parquet", "Can not read value at", "FileNotFoundException", "FILE_NOT_EXIST",
            "DELTA_VERSIONS_NOT_CONTIGUOUS", "DELTA_LOG_FILE_NOT_FOUND", "DELTA_TRUNCATED_TRANSACTION_LOG",
            "DELTA_STATE_RECOVER_ERROR", "DELTA_INVALID_LOGSTORE_CONF", "CANNOT_READ_FILE_FOOTER",
            "DELTA_MISSING_PART_FILES", "DELTA_CHECKPOINT")  # fmt: skip
# Spark's client of a store is not there, or not set up. No retry helps.
_CLIENT = {
    "s3a.S3AFileSystem not found": "Spark has no client of S3. Fetch it with `scripts/hadoop_aws.sh FOLDER`, and set "
    "SPARK_DIST_CLASSPATH=FOLDER/*",
    "Service: S3, Status Code: 400": "Spark's client asks the wrong store or region. Set spark.hadoop.fs.s3a.endpoint "
    "and spark.hadoop.fs.s3a.endpoint.region in `spark.conf`",
}


_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_CAUSE = re.compile(r"\s*↳\s*")


def in_one_line(text: str) -> str:
    """What a store's client says in several lines, with colours and an arrow before each cause, as one plain line."""
    return " ".join(_CAUSE.sub(": ", _COLOUR.sub("", text)).split()).rstrip(".")


def of_client(text: str) -> str | None:
    """What to set up for Spark's client of a store; None for other errors, and for keys that have expired."""
    if _EXPIRED in text:
        return None
    return next((remedy for sign, remedy in _CLIENT.items() if sign in text), None)


def cannot_take(text: str) -> str | None:
    """Why a store accepts no more writes, in words; None for other errors."""
    return next((why for sign, why in _CANNOT_TAKE.items() if sign in text), None)


def passing(text: str) -> bool:
    """Whether a failed read may succeed on retry."""
    return any(sign in text for sign in _PASSING)


def gone(text: str) -> bool:
    """Whether delta-rs says that a version is gone, or damaged. Errors of a store say neither, whatever they are."""
    return any(sign in text for sign in _GONE) and not of_store(text)


def of_store(text: str) -> bool:
    """Whether delta-rs passes on what a store said, which is nothing about the table: a retry may help."""
    return passing(text) or _STORE.search(text) is not None


def damaged(text: str) -> bool:
    """Whether Spark, Hadoop or Delta says that a file is missing, or is not as it was written."""
    return any(sign in text for sign in _DAMAGED) and not passing(text)


def make_room(why: str) -> str:
    """The remedy for a reason from `cannot_take`."""
    return "mount it for writing" if why == READ_ONLY else "make room"
