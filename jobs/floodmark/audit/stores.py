"""Tell errors of a store that does not answer from those of damaged files: they say nothing about a file's content."""

from __future__ import annotations

import re

# How object_store begins what a store said. An invalid range is about the file: it is shorter than its size in the log.
_STORE = re.compile(r"Generic (?!LocalFileSystem|DeltaTable)\w+ error")
_RANGE = "Requested range was invalid"
# What the system says of disks, networks, rights and its own limits; and how object_store says 401 and 403.
_SYSTEM = ("Input/output error", "Remote I/O error", "Too many open files", "Cannot allocate memory",
           "Resource temporarily unavailable", "Permission denied", "Operation not permitted", "Stale file handle",
           "Stale NFS file handle", "timed out", "Connection refused", "Connection reset", "Broken pipe",
           "Host is down", "No route to host", "Network is unreachable", "endpoint is not connected",
           "endpoint shutdown", "No locks available", "lacked the necessary privileges",
           "lacked valid authentication")  # fmt: skip
LONGEST = 200  # of a store's page of an error
_MARKS = re.compile(r"\x1b\[\d*m|↳")


def unanswered(fault: BaseException) -> str | None:
    """What a store or the system said in place of a content, in one line; None for errors of a file's content."""
    text = str(fault)
    if _RANGE in text or not (_STORE.search(text) or any(sign in text for sign in _SYSTEM)):
        return None
    parts = [part.strip() for part in _MARKS.sub("", text).splitlines() if part.strip()]
    said = dict.fromkeys(part[:LONGEST] for part in (parts[0], parts[-1]))  # between them are retries and addresses
    return f"it did not answer, which says nothing about its content ({': '.join(said)}): audit again once it does"
