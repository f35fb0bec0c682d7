"""Kinds of source under test, and what every one of them promises: one body of tests for all.

A new kind is one more entry of `KINDS`. The promises about rows need a session, and are in `rows_promised`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from floodmark.connectors.ports import fakes
from floodmark.connectors.ports.source import MALFORMED, Source, Stepped
from floodmark.core.protocol.records.backfills import Rewrite
from floodmark.core.rules.kinds import SourceKind, source_kind
from floodmark.core.rules.rule import EpochLimits, Stream
from support.flow import SCHEMA, event

COLUMNS = {"at": "timestamp", "k": "string", "v": "double", "n": "long"}


@dataclass(frozen=True)
class KindUnderTest:
    """`stream`: how a rule declares it, by where its rows are to lie; `add`: some more rows, as one step.

    remove: those with this n, as one step; None where no row can be removed.
    """

    stream: Callable[[Path], Stream]
    add: Callable[[Path, Iterable[Mapping[str, Any]]], None]
    registered: str | None = None  # where it is, if the engine does not know it by itself
    remove: Callable[[Path, int], None] | None = None


def _fake(place: Path) -> Stream:
    said = {"name": str(place), "columns": "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"}
    return Stream(kind="fake", address=f"fake://{place}", options=said)


def _add_to_table(place: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write_deltalake(place, pa.Table.from_pylist(list(rows), schema=SCHEMA), mode="append")


def _remove_from_table(place: Path, n: int) -> None:
    DeltaTable(place).delete(f"n = {n}")


def _folder(place: Path) -> Stream:
    columns = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"
    said = {"path": str(place), "format": "json", "settle": "0 seconds", "declared": columns}
    return Stream(kind="files", address=str(place), options=said)


def _add_file(place: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Named by how many there are, so that another folder in its place has the same names."""
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / f"{len(list(place.iterdir()))}.json", rows)


def write_json(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One record a line, with times as text; renamed into place."""
    part = path.with_name(f".{path.name}")
    part.write_text("".join(f"{json.dumps(row, default=str)}\n" for row in rows))
    part.rename(path)


# A class as an author writes it: rows in files of a folder, which has an id.
OWN = """\
import json
from datetime import datetime
from pathlib import Path


class Rows:
    def __init__(self, folder):
        self.folder = Path(folder)

    def identity(self):
        return (self.folder / "id").read_text()

    def earliest(self):
        return 0

    def latest(self):
        return len(self._all())

    def read(self, begin, end):
        for row in self._all()[begin:end]:
            yield []  # a page without rows
            yield {**row, "at": row["at"] and datetime.fromisoformat(row["at"])}

    def split(self, begin, end, most):
        return min(begin + most, end)

    def describe(self, offset):
        return f"{offset} rows"

    def _all(self):
        return [json.loads(line) for line in (self.folder / "rows").read_text().splitlines()]
"""


def own(place: Path, **more: Any) -> dict[str, Any]:
    """How a rule declares it, without its code."""
    return {"class": "rows:Rows", "schema": "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT",
            "settings": {"folder": str(place)}, **more}  # fmt: skip


def _own(place: Path) -> Stream:
    said = own(place)
    options = {"named": said["class"], "declared": said["schema"], "settings": said["settings"], "code": OWN}
    return Stream(kind="python", address="python://rows:Rows", options=options)


def add_own(place: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "id").exists():
        (place / "id").write_text(uuid4().hex)
    with (place / "rows").open("a") as text:
        text.write("".join(f"{json.dumps(row, default=str)}\n" for row in rows))


KINDS = {
    "delta": KindUnderTest(
        lambda place: Stream(kind="delta", address=str(place), on_rewrite="correct"),
        _add_to_table,
        remove=_remove_from_table,
    ),
    "files": KindUnderTest(_folder, _add_file),
    "python": KindUnderTest(_own, add_own),
    "fake": KindUnderTest(
        _fake, lambda place, rows: fakes.append(str(place), rows), "floodmark.connectors.ports.fakes:SOURCE"
    ),
}


class Growing:
    """A source of a kind, with a few steps of rows. `offsets`: where it was before them, and after each."""

    def __init__(self, kind: KindUnderTest, place: Path, steps: int = 3):
        self.kind, self.place = kind, place
        self.rows = [[event(10 * step + i, "ab"[i % 2], float(i), i) for i in range(step + 1)] for step in range(steps)]
        self._add(0)
        self.stream = kind.stream(place)
        self.offsets = [self.source.take_start()]
        self._take_end()
        for step in range(1, steps):
            self._add(step)
            self._take_end()

    def _take_end(self) -> None:
        self.offsets.append(self.source.take_end(self.offsets[-1]))

    def _add(self, step: int) -> None:
        self.kind.add(self.place, self.rows[step])

    @property
    def known(self) -> SourceKind:
        return source_kind(self.stream.kind)

    @property
    def source(self) -> Source:
        """Opened anew each time, as every process does."""
        return cast(Source, self.known.open("s", self.stream, self.place.with_name("keep")))


def promised(growing: Growing) -> None:
    """What holds of every source without a session."""
    source, offsets = growing.source, growing.offsets
    assert source.columns() == COLUMNS
    assert source.describe(source.end()) == source.describe(offsets[-1]), "nothing has come"
    assert not source.news(offsets[-1], source.end()), "an offset may also say when it was taken"
    for offset in offsets:
        assert "\n" not in offset
        assert growing.known.can.planned or json.dumps(json.loads(offset)) == offset, "as Spark writes it again"
        assert source.identity(offset) == source.identity(offsets[0])
        assert not source.is_another(offset, source.log_sum(offset))
        source.check_identity(offset, source.log_sum(offset))
        source.check_appended(offset)
        assert source.describe(offset)
    _news_promised(source, offsets)
    if not growing.known.can.planned:
        _steps_promised(cast(Stepped, source), offsets, EpochLimits(**dict.fromkeys(growing.known.can.limits, 1)))


def _news_promised(source: Source, offsets: list[str]) -> None:
    last = len(offsets) - 1
    for i, since in enumerate(offsets):
        assert source.news(since) == (i < last)
        assert bool(source.backlog(since).amount) == (i < last)
        assert source.backlog(since).text
        for j, upto in enumerate(offsets[1:], 1):
            assert source.news(since, upto) == (i < j), (i, j)


def _steps_promised(source: Stepped, offsets: list[str], limits: EpochLimits) -> None:
    """Within limits it goes on, and never beyond where it is to stop."""
    since, upto, seen = offsets[0], offsets[-2], [offsets[0]]
    while since != upto:
        since = source.after(since, upto, limits)
        assert since not in seen
        seen.append(since)
    assert source.after(offsets[0], upto, EpochLimits()) == upto


def rewrites_promised(growing: Growing) -> tuple[Source, Rewrite]:
    """A rewrite follows what was read, names its commits, and nothing is left behind it. It is returned."""
    assert growing.known.can.rewrites == (growing.kind.remove is not None)
    assert growing.kind.remove is not None and growing.source.rewrite(growing.offsets[0]) is None
    for n in (0, 1):
        growing.kind.remove(growing.place, n)
    source = growing.source
    found = source.rewrite(growing.offsets[-1])
    assert found is not None and len(found.commits) == 2
    assert found == source.rewrite(growing.offsets[0]), "what was added before it does not count"
    assert source.news(growing.offsets[-1]) and not source.news(growing.offsets[-1], found.since)
    assert source.news(found.since, found.upto) and not source.news(found.upto)
    assert source.rewrite(found.upto) is source.rewrite(growing.offsets[0], found.since) is None
    assert source.rewrite(growing.offsets[0], found.upto) == found
    growing.kind.add(growing.place, [event(90, n=7)])
    assert growing.source.rewrite(growing.offsets[-1]) == found, "it ends where rows are added"
    assert growing.source.news(found.upto)
    return source, found


def changes_promised(growing: Growing, spark: SparkSession) -> None:
    """The rows that left less those that came are those that were removed, and behind it the others are read."""
    source, found = rewrites_promised(growing)
    left, came = map(_numbers, source.changes(spark, found))
    before = Counter(one["n"] for step in growing.rows for one in step)
    removed = Counter({n: count for n, count in before.items() if n in (0, 1)})
    assert (left - came, came - left) == (removed, Counter())
    assert _numbers(source.frame(spark, growing.offsets[0], found.upto)) == before - removed
    assert _numbers(source.frame(spark, growing.offsets[0], found.since)) == before


def rows_promised(growing: Growing, spark: SparkSession) -> None:
    """A range has exactly its rows, the same again, and ranges join on."""
    source, offsets = growing.source, growing.offsets
    for i, begin in enumerate(offsets):
        for j, end in enumerate(offsets[i:], i):
            expected = Counter(one["n"] for step in growing.rows[i:j] for one in step)
            for _ in range(2 if j == i + 2 else 1):  # some are read twice
                assert _numbers(growing.source.frame(spark, begin, end)) == expected, (i, j)
    assert _numbers(source.whole(spark)) == Counter(one["n"] for step in growing.rows for one in step)
    assert [column for column in source.whole(spark).columns if column != MALFORMED] == list(COLUMNS)
    assert (
        source.frame(spark, offsets[-1], offsets[-1]).schema == source.whole(spark).schema == source.typed(spark).schema
    )


def _numbers(frame: DataFrame) -> Counter[int]:
    return Counter(row["n"] for row in frame.collect())
