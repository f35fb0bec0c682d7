"""Decodes the messages of PostgreSQL's output plugin `pgoutput` (protocol version 1). Pure.

A transaction is a Begin, its changes, and a Commit. Before the first change of a table there is a Relation, and again
after the table was altered. Values are text, as PostgreSQL prints them; or bytes, where these are not in UTF-8, as in
a database whose encoding is SQL_ASCII.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

# Forms and no `Struct`s: Spark may have to pickle this module with its readers, and those cannot be.
_INT, _BEGIN, _COMMIT, _COLUMN = ">I", ">QqI", ">BQQq", ">Ii"
EPOCH_US = 946_684_800_000_000  # 2000-01-01, from which PostgreSQL counts its times
IS_KEY = 1


class Unchanged:
    """A long value that an update left as it is: PostgreSQL doesn't send it."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()
Value: TypeAlias = str | bytes | Unchanged | None
Values: TypeAlias = list[Value]


@dataclass(frozen=True)
class Begin:
    """`lsn`: of the transaction's commit. `at_us`: when it was committed, in microseconds since 1970."""

    lsn: int
    at_us: int
    xid: int


@dataclass(frozen=True)
class Commit:
    """`end`: the place in the log behind it."""

    lsn: int
    end: int
    at_us: int


@dataclass(frozen=True)
class Relation:
    """A table as the changes after it are written. `identity`: of its replica identity, d, n, f or i."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """`old`: of an update whose key changed, and of a delete: the columns of the key, or (`whole`) all of them."""

    kind: Literal["insert", "update", "delete"]
    oid: int
    new: Values | None
    old: Values | None = None
    whole: bool = False


@dataclass(frozen=True)
class Truncate:
    oids: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | Change | Truncate


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes it: `0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def message(data: bytes) -> Message | None:
    """The message; None for one of a kind that has no effect on rows. Raises ValueError for data that is none."""
    try:
        return _message(data)
    except (struct.error, IndexError, UnicodeDecodeError) as fault:
        raise ValueError(f"expected a message of pgoutput, found {data[:40]!r}: {fault}") from None


def _message(data: bytes) -> Message | None:
    kind = data[:1]
    if kind == b"I":
        (oid,) = struct.unpack_from(_INT, data, 1)
        return Change("insert", oid, _tuple(data, 6)[0])
    if kind == b"U":
        return _update(data)
    if kind == b"D":
        (oid,) = struct.unpack_from(_INT, data, 1)
        return Change("delete", oid, None, _tuple(data, 6)[0], data[5:6] == b"O")
    if kind == b"B":
        lsn, at, xid = struct.unpack_from(_BEGIN, data, 1)
        return Begin(lsn, at + EPOCH_US, xid)
    if kind == b"C":
        _, lsn, end, at = struct.unpack_from(_COMMIT, data, 1)
        return Commit(lsn, end, at + EPOCH_US)
    if kind == b"R":
        return _relation(data)
    if kind == b"T":
        (count,) = struct.unpack_from(_INT, data, 1)
        return Truncate(struct.unpack_from(f">{count}I", data, 6))
    if kind in (b"Y", b"O", b"M"):  # a type, an origin, a logical message
        return None
    raise ValueError(f"expected a message of pgoutput, found {data[:40]!r}")


def _update(data: bytes) -> Change:
    (oid,) = struct.unpack_from(_INT, data, 1)
    sign = data[5:6]
    if sign == b"N":
        return Change("update", oid, _tuple(data, 6)[0])
    old, at = _tuple(data, 6)
    return Change("update", oid, _tuple(data, at + 1)[0], old, sign == b"O")


def _tuple(data: bytes, at: int) -> tuple[Values, int]:
    """The values of a row, and where they end."""
    count = data[at] << 8 | data[at + 1]
    at += 2
    found: Values = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t: text
            (size,) = struct.unpack_from(_INT, data, at)
            at += 4
            if at + size > len(data):
                raise IndexError("it ends within a value")
            found.append(_decoded(data[at : at + size]))
            at += size
        elif kind == 0x6E:  # n: null
            found.append(None)
        elif kind == 0x75:  # u: unchanged
            found.append(UNCHANGED)
        else:
            raise ValueError(f"expected a value as text, found one of kind {chr(kind)!r}")
    return found, at


def _decoded(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _relation(data: bytes) -> Relation:
    (oid,) = struct.unpack_from(_INT, data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    identity, count = chr(data[at]), data[at + 1] << 8 | data[at + 2]
    columns = [*_columns(data, at + 3, count)]
    return Relation(
        oid, schema, name, identity, tuple(one for one, _ in columns), tuple(one for one, key in columns if key)
    )


def _columns(data: bytes, at: int, count: int) -> Iterator[tuple[str, bool]]:
    """The name of each column, and whether it is part of the replica identity."""
    for _ in range(count):
        flags = data[at]
        name, at = _text(data, at + 1)
        struct.unpack_from(_COLUMN, data, at)  # type and its modifier: the catalog has them, too
        at += struct.calcsize(_COLUMN)
        yield name, bool(flags & IS_KEY)


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1
