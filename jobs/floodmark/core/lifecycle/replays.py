"""Decides which dead rows a replay reads again, each once, and with which corrected values.

A replay is an epoch whose offsets equal the head's. Its intent says which rows it reads. So a retry reads the same
rows, and a later replay skips them.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence

from floodmark.core.lifecycle.backfills import why_not_at_all
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Counts, Replay, total
from floodmark.core.rules.rule import Rule
from floodmark.core.rules.sinks.sinkcolumns import QUARANTINE_COLUMNS
from floodmark.core.sql import analyse_expression
from floodmark.errors import Refused, SqlAt

MALFORMED_RECORD = "malformed record: "  # begins the reason of a dead row that is no row: nothing of it could be read


def replay_of(
    head: Head, stream: str | None, where: str | None, corrections: Iterable[str], columns: Collection[str]
) -> Replay:
    """The requested replay, checked. `corrections`: texts COLUMN=SQL; `columns`: those of the dead rows.

    Raises Refused, naming the option, for an unknown stream or column and for SQL that a replay may not use.
    """
    if stream is not None and stream not in head.rule.streams:
        raise Refused(f"--stream: expected one of {', '.join(head.rule.streams)}, found {stream!r}")
    corrected = _corrected([_correction(text, columns) for text in corrections])
    asked = Replay(upto=head.epoch, stream=stream, where=where, corrected=corrected)
    check_replay(asked)
    return asked


def _corrected(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """SQL by column. Raises Refused for a column that is set twice."""
    found: dict[str, str] = {}
    for name, sql in pairs:
        if name in found:
            raise Refused(f"--set: expected one value for column {name}, found {found[name]!r} and {sql!r}: keep one")
        found[name] = sql
    return found


def _correction(text: str, columns: Collection[str]) -> tuple[str, str]:
    name, equals, sql = text.partition("=")
    known = {column.lower(): column for column in columns if column not in QUARANTINE_COLUMNS}
    if not equals or not sql.strip():
        raise Refused(f"--set: expected COLUMN=SQL, such as n=try_cast(k AS BIGINT), found {text!r}")
    found = known.get(name.strip().lower())
    if found is None:
        near = difflib.get_close_matches(name.strip(), known.values(), 1)
        hint = f"did you mean {near[0]}?" if near else f"columns: {', '.join(known.values())}"
        raise Refused(f"--set: dead rows have no column {name.strip()!r} to correct; {hint}")
    return found, sql.strip()


def check_replay(replay: Replay) -> None:
    """Raise Refused for SQL that is not allowed. A replay from a ledger may be older than these checks."""
    if replay.where is not None:
        check_expression("--where", replay.where)
    for name, sql in replay.corrected.items():
        check_expression(f"--set {name}", sql)


def check_not_spent(rule: Rule, head: Head, counts: Mapping[str, Counts]) -> None:
    """Raise Refused for late rows that a class would never get: each row is replayed once.

    Rows that the class has rejected are always late, because the watermark had passed them.
    """
    late, read = total(counts).late, total(counts).read
    reason = why_not_at_all(rule, head) if rule.process is not None and late else None
    if reason is not None:
        raise Refused(
            f"rule {rule.rule}: expected dead rows at or after the watermark, found {late} of {read} below. The class "
            f"gets late rows only in a backfill of everything, and the rule cannot be backfilled: {reason}. Each row "
            "is replayed once, so nothing was replayed: leave these rows out with `--where`, or give them a later "
            "event time with `--set`"
        )


def late_way(rule: Rule, late: int) -> str:
    """What is left to do after a replay in which rows of a class are late; empty: nothing."""
    if rule.process is None or not late:
        return ""
    return (
        f". The class gets the late rows only in a backfill: `floodmark backfill {rule.rule} --all`. "
        "It fails if the class still rejects them: rows with a value that Python lacks need `--set` in their replay"
    )


def check_expression(option: str, sql: str) -> None:
    """Raise Refused, naming the option, for SQL over one row that is not allowed."""
    try:
        analyse_expression(sql)
    except SqlAt as fault:
        raise Refused(f"{option}: column {fault.column} of the expression: {fault.problem}") from None


def wanted(replay: Replay, earlier: Iterable[Replay], lost: Collection[int]) -> str:
    """SQL over the dead table that is true for the rows that a replay reads.

    Each condition is computed only for rows that it is about, because an earlier one may fail on rows of later epochs.
    Raises Refused for a replay with SQL that is not allowed.
    """
    earlier = list(earlier)
    for one in (*earlier, replay):
        check_replay(one)
    before = "".join(f" WHEN {_matches(one, lost)} THEN false" for one in earlier)
    unread = f" WHEN startswith(_reason, '{MALFORMED_RECORD}') THEN false"
    return f"CASE{unread}{before} WHEN {_matches(replay, lost)} THEN true ELSE false END"


def _matches(replay: Replay, lost: Collection[int]) -> str:
    about = f"_epoch <= {replay.upto}"
    if lost:
        about += f" AND _epoch NOT IN ({', '.join(map(str, sorted(lost)))})"
    if replay.stream is not None:
        about += f" AND _stream = '{replay.stream}'"
    meant = "true" if replay.where is None else f"coalesce(({replay.where}\n), false)"
    return f"(CASE WHEN {about} THEN {meant} ELSE false END)"


def replayed_in(row: Mapping[str, object], replays: Mapping[int, Replay]) -> str | None:
    """The epoch that has read a dead row again, with its condition if only Spark can evaluate it; None: none has.

    No replay reads a malformed record, which has no row.
    """
    told: list[str] = []
    if str(row.get("_reason")).startswith(MALFORMED_RECORD):
        return None
    for epoch, replay in sorted(replays.items()):
        if int(str(row["_epoch"])) > replay.upto or replay.stream not in (None, row["_stream"]):
            continue
        if replay.where is None:
            return ", else ".join([*told, str(epoch)])
        told.append(f"{epoch} if {' '.join(replay.where.split())}")
    return ", else ".join(told) or None
