"""Check each epoch: its offsets continue where the last one ended, and every row that it read is accounted for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from floodmark.audit.evidence import Finding
from floodmark.audit.ledger.expected import misled, misled_results
from floodmark.audit.ledger.generations import Backfill, Epoch, Generation

NOWHERE = "-"
PARTS = ("filtered", "dropped", "dead", "late", "folded")


@dataclass(frozen=True)
class Place:
    """An offset in a Delta table: files of `version` up to `index` are read; `snapshot`: of the whole table."""

    table: str
    version: int
    index: int
    snapshot: bool


def balanced(epoch: Epoch) -> Iterator[Finding]:
    """Faults of one epoch that has ended, or is open."""
    for verdict, what in (*_offsets(epoch), *_rows(epoch), *_lost(epoch), *_expected(epoch)):
        yield Finding(verdict, what, epoch.generation, epoch.number)


def refilled(generation: Generation) -> Iterator[Finding]:
    """Faults of backfills: each must read what epochs had read, account for every row and move no offset."""
    late = Counter[str]()
    late_at = [late.copy()]
    for epoch in generation.epochs:
        if epoch.result != "abandoned":
            late.update({name: one["late"] for name, one in epoch.intent["counts"].items()})
        late_at.append(late.copy())
    for backfill in generation.backfills:
        upto = backfill.intent["upto"]
        if not 0 <= upto <= backfill.epoch:
            whats: Iterable[str] = [f"it claims to have read as of epoch {upto}, but follows epoch {backfill.epoch}"]
        else:
            whats = chain(
                _refilled(backfill, _statuses(generation, backfill)),
                _restated(backfill, late_at[upto], _may_have_left(generation, backfill)),
                looked_up(backfill, generation.epochs),
            )
        for what in whats:
            yield Finding("broken", f"backfill {backfill.number}: {what}", backfill.generation, backfill.epoch)


def looked_up(backfill: Backfill, epochs: Sequence[Epoch]) -> Iterator[str]:
    """Of a backfill with lookup tables as epochs read them: epochs that have read other versions than it says."""
    for one in backfill.intent.get("then", ()):
        first, upto = one["first"], one["upto"]
        meant = [epoch for epoch in epochs if first <= epoch.number <= upto and epoch.result == "committed"]
        if not meant or any(epoch.intent["lookups"] != one["lookups"] for epoch in meant):
            yield f"it reads lookup tables in versions that epochs {first} to {upto} have not read"


def deferred(generation: Generation) -> Iterator[Finding]:
    """Faults of rows that defer rewrites: the offsets are behind these, and no other moves."""
    for one in generation.deferrals:
        for what in _behind_rewrites(generation.streams, one.before, one.body):
            yield Finding("broken", what, generation.number, one.epoch)


def _statuses(generation: Generation, backfill: Backfill) -> list[Mapping[str, Any]]:
    """Where its sources may be: where the epoch ended, or behind what moved them before the backfill began."""
    found = generation.statuses_at(backfill.intent["upto"], backfill.number)
    return found[-1:] if backfill.rewrites and not backfill.is_deferred else found


def _refilled(backfill: Backfill, ended: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    body = backfill.intent
    if backfill.rewrites and not backfill.is_deferred:
        yield from _behind_rewrites(backfill.rule["streams"], ended[-1], body)
    elif all(_lines(body) != _lines(one) for one in ended):
        yield f"its sources are not where epoch {body['upto']} ended"
    if backfill.rewrites:
        yield from _newest_times(ended[0]["maxima"] if backfill.is_deferred else ended[-1]["maxima"], body["maxima"])
    yield from (what for _, what in _parts(body["counts"]))
    yield from misled(backfill.rule, body["counts"], dead=False)
    yield from misled_results(backfill.rule, body.get("expected", {}))


def _may_have_left(generation: Generation, backfill: Backfill) -> bool:
    """Whether rows that were late may have left their sources before: by what was corrected, or passed over."""
    return (
        any(one.rewrites for one in generation.backfills if one.number <= backfill.number)
        or any(one.after < backfill.number for one in generation.deferrals)
        or any(one.intent.get("skipped") for one in generation.epochs if one.number <= backfill.epoch)
    )


def _restated(backfill: Backfill, late: Mapping[str, int], may_have_left: bool) -> Iterator[str]:
    """Late rows that were restated, and that cannot be."""
    for name, rows in backfill.intent["restated"].items():
        counts = backfill.intent["counts"][name]
        read = counts["folded"] + counts.get("dropped", 0)
        if rows > late[name] or (rows > read and not may_have_left):
            yield f"stream {name}: {rows} late rows were restated, more than were late, or folded and dropped"


def _behind_rewrites(streams: Iterable[str], before: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
    """Faults of a row's offsets: those of the rewritten streams are behind the rewrites, no others move."""
    moves = zip(streams, _lines(before), _lines(body), strict=True)
    for name, one, other in moves:
        rewrite = body["rewrites"].get(name)
        if other != (one if rewrite is None else rewrite["upto"]):
            yield f"stream {name}: its offset is not where the rewrites have left it"
        if rewrite is not None:
            was, since, upto = (_place(line) for line in (one, rewrite["since"], rewrite["upto"]))
            if not was.table == since.table == upto.table or not was.version <= since.version < upto.version:
                yield f"stream {name}: the rewrite from {_shown(since)} to {_shown(upto)} does not follow {_shown(was)}"


def _newest_times(before: Mapping[str, int | None], after: Mapping[str, int | None]) -> Iterator[str]:
    for name, at in before.items():
        reached = after.get(name)
        if at is not None and (reached is None or reached < at):
            yield f"stream {name}: its newest event time goes back"


def _lines(body: Mapping[str, Any]) -> list[str]:
    """The offsets of an entry, as text."""
    return str(body["entry"]).rstrip("\n").split("\n")[2:]


Problems = Iterator[tuple[Literal["broken", "unknown"], str]]


def places(body: Mapping[str, Any], kinds: Sequence[str]) -> list[Place | str | None]:
    """The offset of each stream in a row's entry; None: not started; a text: of a source that is not a table.

    `kinds`: of the streams' sources. Raises ValueError for an entry that cannot be read.
    """
    version, _, *lines = body["entry"].rstrip("\n").split("\n")
    if version != "v1":
        raise ValueError(f"an entry of version {version}")
    kinds = [*kinds, *["delta"] * (len(lines) - len(kinds))]
    known = (_place(line) if kind == "delta" else line for line, kind in zip(lines, kinds, strict=False))
    return [None if line == NOWHERE else place for line, place in zip(lines, known, strict=False)]


def _place(line: str) -> Place:
    found = json.loads(line)
    try:
        return Place(
            str(found["reservoirId"]), int(found["reservoirVersion"]), int(found["index"]), found["isStartingVersion"]
        )
    except (KeyError, TypeError):
        raise ValueError(f"an offset that is not of a Delta table: {line}") from None


def _offsets(epoch: Epoch) -> Problems:
    try:
        kinds = _kinds(epoch)
        before, after = (places(body, [*kinds.values()]) for body in (epoch.before, epoch.intent))
    except ValueError as fault:
        yield "unknown", f"the offsets cannot be compared: {fault}"
        return
    streams = epoch.intent["counts"]
    if not len(before) == len(after) == len(streams):
        yield "broken", f"{len(streams)} streams have {len(before)} offsets before and {len(after)} after"
        return
    replay = epoch.intent.get("replay") is not None
    for name, one, other in zip(epoch.rule["streams"], before, after, strict=True):
        if replay and one != other:
            yield "broken", f"stream {name}: its offset has moved in an epoch that read dead rows"
        yield from _moved(name, one, other, 0 if replay else streams[name]["read"])


def _kinds(epoch: Epoch) -> dict[str, str]:
    """Stream → its kind of source; a landing is a Delta table."""
    streams = epoch.rule["streams"].items()
    return {
        name: "delta" if stream.get("landing") is not None else str(stream.get("kind", "delta"))
        for name, stream in streams
    }


def _moved(name: str, one: Place | str | None, other: Place | str | None, read: int) -> Problems:
    if one == other:
        if read:
            yield "broken", f"stream {name}: {read} rows were read though its offset has not moved"
    elif one is None or other is None:
        if other is None:
            yield "broken", f"stream {name}: its offset is gone"
    elif isinstance(one, str) or isinstance(other, str):
        pass  # the source's own text: `repeated_offsets` reports one that recurs
    elif one.table != other.table:
        yield "broken", f"stream {name}: its offset went from table {one.table} to table {other.table}"
    elif (other.version, other.index) < (one.version, one.index) or (other.snapshot and not one.snapshot):
        yield "broken", f"stream {name}: its offset goes back, from {_shown(one)} to {_shown(other)}"


def repeated_offsets(generation: Generation) -> Iterator[Finding]:
    """Faults over the epochs: a stream returns to an offset that it has left. Only for sources that are not tables."""
    left: dict[str, set[str]] = {}
    for epoch in (one for one in generation.epochs if one.result != "abandoned" and not one.rule.get("rebuild")):
        lines = zip(_kinds(epoch).items(), _lines(epoch.before), _lines(epoch.intent), strict=False)
        for (name, kind), before, after in lines:
            gone = left.setdefault(name, set())
            if after != before and after in gone and kind != "delta":
                what = f"stream {name}: its offset goes back, from {before} to {after}"
                yield Finding("broken", what, epoch.generation, epoch.number)
            gone |= {before} - {after}


def excess_rejections(generation: Generation) -> Iterator[Finding]:
    """Faults over the epochs: a class rejects more rows than were folded, or replays read a dead row twice."""
    folded, dead = Counter[str](), Counter[str]()
    for epoch in generation.epochs:
        counts = epoch.intent["counts"]
        if epoch.intent.get("replay") is not None and epoch.result not in ("open", "abandoned"):
            for name, one in counts.items():
                if one["read"] > dead[name]:
                    what = f"stream {name}: {one['read']} dead rows were read again, of {dead[name]} that were left"
                    yield Finding("broken", what, epoch.generation, epoch.number)
                dead[name] -= one["read"]
        if epoch.result == "committed":
            rejected = epoch.end.get("rejected", {})
            for name, one in counts.items():
                folded[name] += one["folded"] - rejected.get(name, 0)
                dead[name] += one["dead"] + rejected.get(name, 0)
                if folded[name] < 0:
                    what = f"stream {name}: more rows were rejected than had been folded"
                    yield Finding("broken", what, epoch.generation, epoch.number)


def _shown(place: Place) -> str:
    return f"version {place.version}, file {place.index}{' of the snapshot' if place.snapshot else ''}"


def _rows(epoch: Epoch) -> Problems:
    yield from _parts(epoch.intent["counts"])


def _expected(epoch: Epoch) -> Problems:
    rule = epoch.rule
    yield from (("broken", what) for what in misled(rule, epoch.intent["counts"]))
    if epoch.result == "committed":
        yield from (("broken", what) for what in misled_results(rule, epoch.end.get("expected", {})))


def _parts(streams: Mapping[str, Mapping[str, int]]) -> Problems:
    for name, counts in streams.items():
        parts = sum(counts.get(part, 0) for part in PARTS)
        if counts["read"] != parts:
            shown = " + ".join(f"{counts[part]} {part}" for part in PARTS if part in counts)
            yield "broken", f"stream {name}: {counts['read']} rows were read, but {shown} are {parts}"


def _lost(epoch: Epoch) -> Problems:
    """At qos 0, all rows that were not filtered count as lost."""
    if epoch.result != "lost":
        return
    counts = epoch.intent["counts"].values()
    expected = sum(one["read"] - one["filtered"] for one in counts)
    if epoch.end["lost"] != expected:
        yield (
            "broken",
            f"{epoch.end['lost']} rows count as lost, expected {expected} (read, less filtered)",
        )
    if epoch.rule["qos"] != 0:
        yield "broken", f"the epoch was given up as lost at qos {epoch.rule['qos']}"
