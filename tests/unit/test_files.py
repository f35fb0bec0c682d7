"""Files as a source, without Spark: which are read, in which order, once, and what is noticed of changes."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from floodmark.connectors.planning.epochends import steps
from floodmark.connectors.ports.source import unrecorded
from floodmark.connectors.sources.files import csvlines
from floodmark.connectors.sources.files import journal as journals
from floodmark.connectors.sources.files.folder import Content, File, Listing, LocalFolder, Twins, Wanted
from floodmark.connectors.sources.files.journal import Journal, Listed, Offset
from floodmark.connectors.sources.files.options import WrittenFiles
from floodmark.connectors.sources.files.source import FilesSource
from floodmark.connectors.sources.files.unread import (
    extended,
    is_settled,
    long_waiting,
    once,
    renewed,
    unread,
    within,
)
from floodmark.core.relay.manifests import MANIFESTS, Manifest, manifest_name
from floodmark.core.relay.positions import Position
from floodmark.core.rules.rule import EpochLimits, Stream
from floodmark.errors import Fenced, HistoryGone, NotThereYet, Refused, RunFailed, TableBroken, WrongColumn

SECOND = 1_000_000_000
COLUMNS = "k STRING, n BIGINT"


def file(path: str, size: int = 1, modified: int = 0, changed: int = 0, id: int = 0) -> File:
    return File(path, size, modified, changed, id)


def listed(path: str, content: str = "x", **facts: int) -> Listed:
    return Listed(file(path, **facts), content)


# --- Decisions


@pytest.mark.parametrize(
    ("modified", "changed", "settled"),
    [(90, 90, True), (91, 91, False), (0, 99, True), (100, 100, False), (500, 90, True), (500, 91, False)],
)
def test_a_file_is_settled_by_its_time_and_one_of_the_future_by_its_change(
    modified: int, changed: int, settled: bool
) -> None:
    assert is_settled(file("a", modified=modified, changed=changed), 100, 10) == settled


def test_a_file_is_unread_whatever_its_time_and_the_oldest_comes_first() -> None:
    listing = [file("c", modified=5), file("b", modified=9), file("a", modified=9), file("read", modified=9)]
    found = unread(listing, [listed("read")], 10, 0)
    assert [one.path for one in found] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("read", "is_own", "found"),
    [
        ({}, True, ["a", "c"]),
        ({}, False, ["a", "c"]),
        ({"b": 1}, True, ["b", "c"]),  # the link came first
        ({"b": 1}, False, ["b", "c"]),
        ({"a": 1, "b": 1}, False, ["a", "b", "c"]),  # as before twins were found: neither is gone
        ({"x": 1}, False, ["c"]),  # a link that leads elsewhere now
        ({"b": 2}, True, ["a", "c"]),
        ({"b": 2}, False, ["b", "c"]),  # its content tells whether it is the same
        ({"b": 3}, False, ["a", "c"]),  # it was a link to `c`
        ({"a": 3, "b": 3}, False, ["a", "b", "c"]),
        ({"a": 1, "b": 3}, False, ["a", "c"]),
    ],
)
def test_a_file_is_read_by_one_path_whatever_links_lead_to_it(
    read: dict[str, int], is_own: bool, found: list[str]
) -> None:
    """`read`: inodes."""
    listing = Listing([file("a", id=1), file("b", id=1), file("c", id=3)], [], (Twins(("a", "b"), is_own),))
    assert [one.path for one in once(listing, [listed(path, id=id) for path, id in read.items()])] == found


def test_the_tail_of_the_list_stays_up_to_the_first_file_that_is_no_longer_as_it_was() -> None:
    tail = [listed("a", "A"), listed("b", "B"), listed("c", "C")]
    fresh = [file("a"), file("b", size=2), file("c"), file("d")]
    found = extended(tail, fresh, lambda one: Listed(one, "new"))
    assert found.kept == 1
    assert [one.file for one in found.added] == fresh[1:]
    assert extended(tail, [file("b"), file("a"), file("c")], lambda one: Listed(one, "new")).kept == 3


@pytest.mark.parametrize(
    ("limits", "count"),
    [({}, 4), ({"max_files": 3}, 3), ({"max_bytes": 5}, 2), ({"max_bytes": 1}, 1), ({"max_files": 9}, 4)],
)
def test_an_epoch_reads_files_within_its_limits_and_at_least_one(limits: dict[str, int], count: int) -> None:
    files = [listed(str(i), size=size) for i, size in enumerate((2, 3, 1, 1))]
    assert within(files, EpochLimits(**limits)) == count


# --- The list


def test_the_list_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    written = Journal.load(tmp_path / "files.jsonl")
    written.write(0, 0, [listed("a"), listed("b")])
    written.write(1, 0, [listed("ü c", "C", size=7, modified=2**62, id=2**63)])
    written.write(2, 2, [])
    found = Journal.load(tmp_path / "files.jsonl")
    assert (found.files, found.sums, found.first) == (written.files, written.sums, 2)
    assert [one.file.path for one in found.files] == ["a", "ü c"]


def test_a_line_that_is_cut_off_does_not_count_and_the_next_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "files.jsonl"
    for cut in range(1, 40, 3):
        path.unlink(missing_ok=True)
        first = Journal.load(path)
        first.write(0, 0, [listed("a")])
        whole = path.read_bytes()
        first.write(1, 0, [listed("b")])
        path.write_bytes(path.read_bytes()[: len(whole) + cut])
        found = Journal.load(path)
        assert [one.file.path for one in found.files] == ["a"]
        found.write(1, 0, [listed("c")])
        assert [one.file.path for one in Journal.load(path).files] == ["a", "c"]


def test_a_line_of_a_driver_that_was_overtaken_has_no_effect(tmp_path: Path) -> None:
    path = tmp_path / "files.jsonl"
    Journal.load(path).write(0, 0, [listed("a")])
    Journal.load(path).write(1, 0, [listed("b")])
    appended = {"at": 1, "keep": 0, "first": 0, "files": [[*("z", 1, 0, 0, 0), "Z"]]}
    path.write_bytes(path.read_bytes() + f"{json.dumps(appended)}\n".encode())
    assert [one.file.path for one in Journal.load(path).files] == ["a", "b"]


def test_a_driver_that_was_overtaken_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "files.jsonl"
    Journal.load(path).write(0, 0, [listed("a")])
    overtaken = Journal.load(path)
    Journal.load(path).write(1, 0, [listed("b")])
    with pytest.raises(Fenced, match="another run has listed files meanwhile"):
        overtaken.write(1, 0, [listed("z")])
    assert [one.file.path for one in Journal.load(path).files] == ["a", "b"]


def test_an_offset_belongs_to_one_list(tmp_path: Path) -> None:
    one, other = Journal(None), Journal(None)
    for journal, content in ((one, "x"), (other, "y")):
        for path in ("a", "b"):
            journal._add(listed(path, content))
    at = Offset.parse(one.offset(2, 0).line())
    assert one.has(at) and not other.has(at) and not Journal(None).has(at)
    assert one.has(one.offset(1, 0))


def test_a_damaged_list_is_named(tmp_path: Path) -> None:
    path = tmp_path / "files.jsonl"
    Journal.load(path).write(0, 0, [listed("a")])
    path.write_bytes(path.read_bytes() + b"\0\0\n")
    with pytest.raises(TableBroken, match=r"no entry in line 2.*floodmark reset"):
        Journal.load(path)


def test_only_what_was_added_to_a_list_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "files.jsonl"
    Journal.load(path).write(0, 0, [listed("a"), listed("b")])
    before = Journal.load(path)
    Journal.load(path).write(2, 1, [listed("c")])
    for _ in range(2):
        found = Journal.load(path)
        assert (found.first, [one.file.path for one in found.files]) == (1, ["a", "b", "c"])
        assert all(one is known for one, known in zip(found.files, before.files, strict=False)), "the same objects"
    assert (before.first, len(before.files), len(before.sums)) == (0, 2, 3)
    found._add(listed("d"))
    assert len(Journal.load(path).files) == 3, "no reader changes what the next one gets"


@pytest.mark.parametrize(
    ("replaced", "files"),
    [
        (lambda _: b"", 0),
        (lambda whole: whole.replace(b'"B"', b'"X"'), 2),
        (lambda whole: b'{"at": 0, "keep": 0, "first": 0, "files": []}\n' * len(whole), 0),
    ],
    ids=["shorter", "as long", "longer"],
)
def test_a_list_that_somebody_replaced_is_read_anew(
    tmp_path: Path, replaced: Callable[[bytes], bytes], files: int
) -> None:
    path = tmp_path / "files.jsonl"
    Journal.load(path).write(0, 0, [listed("a", "A")])
    Journal.load(path).write(1, 0, [listed("b", "B")])
    at = Journal.load(path).offset(2, 0)
    path.write_bytes(replaced(path.read_bytes()))
    found = Journal.load(path)
    assert len(found.files) == files and not found.has(at)
    path.unlink()
    assert not Journal.load(path).files


def test_of_many_lists_the_longest_and_those_read_last_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_MOST", 4)
    monkeypatch.setattr(journals, "_READ", journals._Read())
    for name, many in {"long": 9, "a": 2, "b": 2, "c": 1}.items():
        Journal.load(tmp_path / name).write(0, 0, [listed(str(i)) for i in range(many)])
    first = {name: Journal.load(tmp_path / name).files[0] for name in ("long", "a", "b", "c")}
    again = [Journal.load(tmp_path / name).files[0] is first[name] for name in ("long", "b", "c", "a")]
    assert again == [True, True, True, False]


WRITER = """
import sys
from pathlib import Path
from floodmark.connectors.sources.files.folder import File
from floodmark.connectors.sources.files.journal import Journal, Listed
journal = Journal.load(Path(sys.argv[1]))
while True:
    count = len(journal.files)
    journal.write(count, 0, [Listed(File(f"{count + i}" * 50, 1, 2, 3, 4), "s" * 64) for i in range(200)])
    print(len(journal.files), flush=True)
"""


def test_a_list_survives_kills_with_all_that_was_written(tmp_path: Path) -> None:
    path, random, known = tmp_path / "files.jsonl", Random(1), 0
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(random.randrange(1, 9)):
                known = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
        found = Journal.load(path)
        assert len(found.files) >= known
        assert [one.file.path for one in found.files] == [f"{i}" * 50 for i in range(len(found.files))]


# --- The source


class Dropped:
    """A folder, the source over it, and the offset of what is read."""

    def __init__(self, root: Path, start: str = "earliest", **said: Any):
        self.root, self.keep, self._start = root / "in", root / "keep", start
        self.root.mkdir()
        self.said = {"format": "json", "schema": COLUMNS, "settle": "0 seconds", **said}
        self.at = ""

    @property
    def source(self) -> FilesSource:
        written = WrittenFiles.model_validate({"path": str(self.root), **self.said})
        options = written.model_dump(mode="json")
        stream = Stream.model_validate(
            {"kind": "files", "address": str(self.root), "options": options, "start": self._start}
        )
        return FilesSource("events", stream, self.keep)

    def drop(self, name: str, text: str = '{"k": "a", "n": 1}\n') -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def begin(self) -> None:
        self.at = self.source.take_start()

    def read(self) -> list[str]:
        """The files that an epoch over all input reads now."""
        source = self.source
        end = source.take_end(self.at)
        files = source._journal.files[Offset.parse(self.at).files : Offset.parse(end).files]
        self.at = end
        return [one.file.path for one in files]


@pytest.fixture
def dropped(tmp_path: Path) -> Dropped:
    found = Dropped(tmp_path)
    found.begin()
    return found


def test_each_file_is_read_once_whatever_its_time_says(dropped: Dropped) -> None:
    dropped.drop("b.json")
    assert dropped.read() == ["b.json"]
    os.utime(dropped.drop("a.json"), (0, 0))
    os.utime(dropped.drop("late.json"), (2**32, 2**32))
    assert dropped.source.news(dropped.at)
    assert dropped.read() == ["a.json", "late.json"]
    assert dropped.read() == [] and not dropped.source.news(dropped.at)


def test_hidden_files_folders_below_and_other_names_are_left_out(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path, glob="*.json")
    dropped.begin()
    for name in ("_tmp.json", ".x.json", "a.csv", "below/b.json", "_below/c.json", "d.json"):
        dropped.drop(name)
    assert dropped.read() == ["d.json"]
    dropped.said["recursive"] = True
    assert dropped.read() == ["below/b.json"]


def target_at(folder: Path, text: str | None = None) -> None:
    """A target of files, by its first manifest. `text`: that of another program."""
    file = folder / MANIFESTS / manifest_name(0)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(Manifest(0, 0, Position("ledger"), (), "k STRING", "").text() if text is None else text)


@pytest.mark.parametrize(
    ("target", "file"),
    [(".", "a.json"), ("../kept", "a.json"), ("out", "out/data/a.json"), ("data", "data/data/a.json")],
)
def test_the_files_of_a_target_are_refused_before_one_is_read(tmp_path: Path, target: str, file: str) -> None:
    dropped = Dropped(tmp_path, recursive=True)
    if target == "../kept":
        dropped.root = tmp_path / "kept" / "data"
    dropped.drop(file)
    dropped.begin()
    place = (dropped.root / target).resolve() if target != "../kept" else tmp_path / "kept"
    target_at(place, "{}")
    assert file in dropped.read(), "the manifests are those of another program"
    target_at(place)
    problem = re.escape(f"found {dropped.root} with files of {place}, a target of a rule: its relay puts corrected ")
    for asked in (dropped.read, dropped.source.end):
        with pytest.raises(Refused, match=problem):
            asked()


def test_columns_of_the_files_of_a_target_are_refused_before_there_is_a_file(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path)
    dropped.root = tmp_path / "data"
    dropped.root.mkdir()
    assert dropped.source.columns()
    target_at(tmp_path)
    with pytest.raises(Refused, match=r"its relay puts corrected files in place of others, so rows would count twice"):
        dropped.source.columns()


def test_a_file_that_is_being_written_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = Dropped(tmp_path, settle="10 seconds")
    dropped.begin()
    dropped.drop("a.json")
    assert not dropped.source.news(dropped.at) and dropped.read() == []
    assert dropped.source.backlog(dropped.at).text == "nothing new (1 file not settled yet)"
    now = time.time_ns()
    monkeypatch.setattr("floodmark.connectors.sources.files.source.time.time_ns", lambda: now + 11 * SECOND)
    assert dropped.read() == ["a.json"]


@pytest.mark.parametrize(("done", "marker"), [(".done", "a.json.done"), ("_SUCCESS", "_SUCCESS")])
def test_a_file_waits_for_its_marker(tmp_path: Path, done: str, marker: str) -> None:
    dropped = Dropped(tmp_path, done=done, settle="1 hour")
    dropped.begin()
    dropped.drop("a.json")
    assert dropped.read() == []
    dropped.drop(marker, "")
    assert dropped.read() == ["a.json"]


def test_a_marker_counts_for_all_folders_below_and_no_other(tmp_path: Path) -> None:
    """Spark's `partitionBy` puts `_SUCCESS` beside the folders of the columns."""
    dropped = Dropped(tmp_path, done="_SUCCESS", partitions="day STRING")
    dropped.begin()
    for name in ("job-1/day=1/a.json", "job-1/day=2/b.json", "job-2/day=1/c.json"):
        dropped.drop(name)
    assert dropped.source.backlog(dropped.at).text == "nothing new (3 files without _SUCCESS yet)"
    dropped.drop("job-1/_SUCCESS", "")
    assert dropped.source.backlog(dropped.at).facts["unsettled"] == 1
    assert sorted(dropped.read()) == ["job-1/day=1/a.json", "job-1/day=2/b.json"]
    dropped.drop("job-2/day=1/_SUCCESS", "")
    assert dropped.read() == ["job-2/day=1/c.json"]


def test_a_marker_above_counts_for_files_that_are_no_newer(tmp_path: Path) -> None:
    """One of an earlier job tells nothing of what a later job writes to a folder below."""
    dropped = Dropped(tmp_path, done="_SUCCESS", recursive=True)
    dropped.begin()
    marker = dropped.drop("_SUCCESS", "")
    for name in ("day=1/a.json", "day=2/b.json", "day=2/12:30.json"):
        path = dropped.drop(name)
        os.utime(path, ns=(0, marker.stat().st_mtime_ns + (name != "day=1/a.json")))
    assert dropped.read() == ["day=1/a.json"]
    assert dropped.source.backlog(dropped.at).text == "nothing new (2 files without _SUCCESS yet)"
    (dropped.root / "day=2/12:30.json").unlink()
    dropped.drop("day=2/_SUCCESS", "")
    os.utime(dropped.root / "day=2/_SUCCESS", ns=(0, 0))
    assert dropped.read() == ["day=2/b.json"]
    path = dropped.drop("day=3/c.json")
    os.utime(path, ns=(0, marker.stat().st_mtime_ns + SECOND))
    assert dropped.read() == []
    os.utime(marker, ns=(0, path.stat().st_mtime_ns))
    assert dropped.read() == ["day=3/c.json"]


def test_a_read_file_that_becomes_newer_than_its_marker_is_still_compared(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path, done="_SUCCESS", recursive=True)
    dropped.begin()
    path = dropped.drop("day=1/a.json")
    marker = dropped.drop("_SUCCESS", "")
    os.utime(marker, ns=(0, path.stat().st_mtime_ns))
    assert dropped.read() == ["day=1/a.json"]
    os.utime(path, ns=(0, marker.stat().st_mtime_ns + SECOND))
    assert dropped.read() == []
    assert dropped.source.backlog(dropped.at).text == "nothing new"
    path.write_text("another")
    os.utime(path, ns=(0, marker.stat().st_mtime_ns + SECOND))
    assert dropped.source.is_another(dropped.at)
    with pytest.raises(HistoryGone, match=r"day=1/a\.json was changed after it was read"):
        dropped.read()


def test_files_that_wait_for_a_marker_for_long_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of a load that was copied with its marker first."""
    dropped = Dropped(tmp_path, done="_SUCCESS", recursive=True)
    dropped.begin()
    marker = dropped.drop("_SUCCESS", "")
    for name in ("day=1/a.json", "day=2/b.json"):
        os.utime(dropped.drop(name), ns=(0, marker.stat().st_mtime_ns + SECOND))
    assert dropped.source.notices(dropped.at) == ()
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 3_700 * SECOND)
    (said,) = dropped.source.notices(dropped.at)
    assert re.match(r"stream events: day=1/a\.json of \S+ and 1 more waited for more than an hour for _SUCCESS", said)
    os.utime(marker, ns=(0, marker.stat().st_mtime_ns + 2 * SECOND))
    assert dropped.source.notices(dropped.at) == ()
    assert sorted(dropped.read()) == ["day=1/a.json", "day=2/b.json"]


@pytest.mark.parametrize(("age", "found"), [(3_600 * SECOND - 1, []), (3_600 * SECOND, ["a", "b"])])
def test_a_file_has_waited_for_long_after_an_hour_by_both_times(age: int, found: list[str]) -> None:
    files = [file("b", modified=0, changed=0), file("c", changed=age), file("a", modified=0, changed=0)]
    assert [one.path for one in long_waiting(files, age)] == found


def test_a_marker_is_none_of_the_files_that_it_tells_of(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path, done="READY", schema=None, infer="once")
    dropped.drop("a.json")
    with pytest.raises(NotThereYet, match=r"found none \(1 file without READY yet\)\. Write one first"):
        dropped.source.columns()
    dropped.begin()
    dropped.drop("READY", "all of 2026-01-02")
    assert dropped.read() == ["a.json"]


def test_from_latest_on_only_new_files_are_read(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path, start="latest")
    dropped.drop("old.json")
    assert dropped.source.start() == dropped.source.end()
    dropped.begin()
    assert dropped.read() == []
    dropped.drop("new.json")
    assert dropped.read() == ["new.json"]


def _in_place(path: Path) -> None:
    kept = path.stat()
    with path.open("r+") as text:
        text.write('{"k": "z"')
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert path.stat().st_size == kept.st_size and path.stat().st_mtime_ns == kept.st_mtime_ns


def _replaced(path: Path) -> None:
    kept = path.stat()
    other = path.with_name("_other")
    other.write_text(path.read_text().replace("a", "z"))
    os.utime(other, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    other.rename(path)


def _truncated(path: Path) -> None:
    os.truncate(path, 3)


def _appended(path: Path) -> None:
    with path.open("a") as text:
        text.write("{}\n")


@pytest.mark.parametrize("change", [_in_place, _replaced, _truncated, _appended])
def test_a_file_that_was_changed_after_it_was_read_is_noticed(dropped: Dropped, change: Callable[[Path], None]) -> None:
    dropped.drop("b.json")
    dropped.read()
    change(dropped.root / "b.json")
    assert dropped.source.is_another(dropped.at)
    said = r"stream events: file b\.json was changed after it was read.* bytes of .*SHA-256 .*floodmark reset"
    for ask in (dropped.source.check_appended, dropped.source.backlog, dropped.source.take_end):
        with pytest.raises(HistoryGone, match=said):
            ask(dropped.at)
    dropped.said["overwritten"] = "skip"
    dropped.drop("c.json")
    assert dropped.read() == ["c.json"]


def test_a_file_with_other_times_and_the_same_content_was_not_changed(dropped: Dropped) -> None:
    path = dropped.drop("a.json")
    dropped.read()
    text = path.read_text()
    path.unlink()
    dropped.drop("a.json", text)
    path.chmod(0o600)
    assert dropped.read() == []


def test_files_with_other_times_are_read_for_their_checksum_once(
    dropped: Dropped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `chmod -R`, or a move to another disk. Positions in the list stay valid."""
    for name in "abc":
        dropped.drop(f"{name}.json")
    begun = dropped.at
    dropped.read()
    before = dropped.at
    (dropped.root / "a.json").unlink()
    for name in "bc":
        (dropped.root / f"{name}.json").chmod(0o600)
    dropped.drop("d.json")
    assert dropped.read() == ["d.json"]
    monkeypatch.setattr(LocalFolder, "sum_of", lambda folder, file: pytest.fail(file.path))
    for at in (begun, before, dropped.at):
        dropped.source.check_identity(at, None)
    assert dropped.read() == []
    (dropped.root / "c.json").chmod(0o644)
    with pytest.raises(pytest.fail.Exception, match=r"c\.json"):
        dropped.source.check_identity(dropped.at, None)


def test_the_new_times_of_a_file_whose_content_is_another_are_not_believed() -> None:
    files = [listed("a", "A"), listed("b", "B"), listed("c", "C")]
    assert renewed(files, {}) == (3, ())
    assert renewed(files, {file("b", changed=1): "other"}) == (3, ())
    again = (Listed(file("b", changed=1), "B"), files[2])
    assert renewed(files, {file("b", changed=1): "B"}) == (1, again)


def test_a_file_that_was_read_may_be_removed(dropped: Dropped) -> None:
    path = dropped.drop("a.json")
    dropped.read()
    path.unlink()
    assert not dropped.source.news(dropped.at) and dropped.read() == []


def test_what_no_epoch_has_read_may_change_and_vanish(dropped: Dropped) -> None:
    at = dropped.at
    for name in "abcd":
        os.utime(dropped.drop(f"{name}.json"), (ord(name), ord(name)))
    assert dropped.read() == ["a.json", "b.json", "c.json", "d.json"]
    dropped.at = at  # the run was killed before its intent
    (dropped.root / "b.json").unlink()
    _in_place(dropped.root / "c.json")
    assert dropped.read() == ["a.json", "c.json", "d.json"]
    assert dropped.read() == []
    dropped.source.check_identity(dropped.at, None)


def _removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [_in_place, _appended, _removed])
def test_a_file_that_changes_or_vanishes_while_it_is_listed_waits_for_the_next_run(
    dropped: Dropped,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Path], None],
) -> None:
    for name in ("a.json", "b.json"):
        dropped.drop(name)
    sum_of = LocalFolder.sum_of

    def changes(folder: LocalFolder, file: File) -> str:
        if change is _removed:
            change(dropped.root / "a.json") if file.path == "a.json" else None
            return sum_of(folder, file)
        found = sum_of(folder, file)
        if file.path == "a.json":
            change(dropped.root / "a.json")
        return found

    with monkeypatch.context() as during:
        during.setattr(LocalFolder, "sum_of", changes)
        assert dropped.read() == ["b.json"]
    left = "stream events: a.json left to the next run: changed or removed since listed"
    assert [one.getMessage() for one in caplog.records] == [left]
    assert dropped.read() == ([] if change is _removed else ["a.json"])
    assert len(caplog.records) == 1


def test_a_file_whose_inode_is_another_at_each_look_is_read(dropped: Dropped, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some mounts. Its size and times tell whether it changed while it was listed."""
    inodes, path = count(), dropped.drop("a.json")
    at = LocalFolder._at
    monkeypatch.setattr(LocalFolder, "_at", lambda folder, path: replace(at(folder, path), id=-next(inodes)))
    begin = dropped.at
    assert dropped.read() == ["a.json"]
    session: Any = None
    source = dropped.source
    monkeypatch.setattr(source, "_rows", lambda _, files: [one.path for one in files])
    assert source.frame(session, begin, dropped.at) == ["a.json"]
    _appended(path)
    with pytest.raises(HistoryGone, match="was changed after it was read"):
        dropped.read()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_appended, r"a\.json was changed after it was listed\. Listed were 19 "),
        (_removed, "a.json, which is to be read"),
    ],
)
def test_a_file_that_changes_before_its_epoch_fails_the_run_and_stops_a_retry(
    dropped: Dropped, change: Callable[[Path], None], said: str
) -> None:
    path, begin = dropped.drop("a.json"), dropped.at
    dropped.read()
    change(path)
    session: Any = None
    with pytest.raises(HistoryGone, match=rf"{said}.*floodmark reset"):
        dropped.source.frame(session, begin, dropped.at)
    with pytest.raises(RunFailed, match=rf"{said}.* No epoch has read it: run again"), unrecorded():
        dropped.source.frame(session, begin, dropped.at)


@pytest.mark.parametrize("said", [{"format": "csv"}, {"format": "avro", "schema": None}])
def test_a_file_that_vanishes_while_it_is_looked_at_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    dropped = Dropped(tmp_path, **said)
    dropped.begin()
    dropped.drop("a")
    monkeypatch.setattr(LocalFolder, "content", lambda *_: Content("in/a", (tmp_path / "gone").open))
    with pytest.raises(RunFailed, match=r"in/a was removed while it was looked at; run again"):
        dropped.read()


def test_a_reset_reads_the_files_as_they_are_then(dropped: Dropped) -> None:
    first = dropped.drop("a.json")
    dropped.drop("b.json").touch()
    dropped.read()
    first.write_text("{}\n")
    before = dropped.at
    dropped.begin()
    assert Offset.parse(dropped.at).first == 2
    assert sorted(dropped.read()) == ["a.json", "b.json"]
    assert dropped.source.describe(dropped.at) == "2 files"
    assert dropped.source._journal.has(Offset.parse(before)), "its epochs are still known"


def test_a_file_that_is_as_it_was_is_not_read_for_its_checksum_again(
    dropped: Dropped, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped.drop("a.json")
    dropped.read()
    dropped.begin()
    monkeypatch.setattr(LocalFolder, "sum_of", lambda folder, file: pytest.fail(file.path))
    assert dropped.read() == ["a.json"]


def test_a_lost_list_is_noticed(dropped: Dropped) -> None:
    dropped.drop("a.json")
    dropped.read()
    (dropped.keep / "files.jsonl").unlink()
    with pytest.raises(HistoryGone, match=r"expected a list with the 1 file that were read.*floodmark reset"):
        dropped.source.check_identity(dropped.at, None)


def test_a_look_writes_nothing_and_its_end_is_one_for_a_later_run(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path)
    dropped.drop("a.json")
    source = dropped.source
    seen = source.end()
    assert source.news(source.start(), seen) and source.waiting(None) > 0
    assert not dropped.keep.exists()
    dropped.begin()
    assert dropped.source.news(dropped.at, seen)
    dropped.read()
    assert not dropped.source.news(dropped.at, seen)
    dropped.drop("b.json")
    assert not dropped.source.news(dropped.at, seen) and dropped.source.news(dropped.at)


def test_epochs_end_within_the_limits(dropped: Dropped) -> None:
    for i in range(5):
        dropped.drop(f"{i}.json")
    found = steps(dropped.source, dropped.at, EpochLimits(max_files=2))
    assert [dropped.source.describe(one) for one in found] == ["0 files", "2 files", "4 files", "5 files"]


def test_ten_thousand_files_are_looked_at_within_two_seconds(dropped: Dropped) -> None:
    for i in range(10_000):
        (dropped.root / f"{i}.json").touch()
    assert len(dropped.read()) == 10_000
    began = time.process_time()
    dropped.source.check_identity(dropped.at, None)
    assert not dropped.source.news(dropped.at)
    assert time.process_time() - began < 2


# --- Columns


def test_columns_of_parquet_are_those_of_the_first_file_and_others_must_fit(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path, format="parquet", schema=None)
    with pytest.raises(NotThereYet, match=r"expected a file at .* to find the columns in, found none"):
        dropped.source.columns()
    parquet.write_table(pa.table({"n": pa.array([1], pa.int64()), "k": ["a"]}), dropped.root / "a.parquet")
    assert dropped.source.columns() == {"n": "long", "k": "string"}
    dropped.begin()
    dropped.read()
    (dropped.root / "a.parquet").unlink()
    parquet.write_table(pa.table({"n": pa.array([1], pa.int32())}), dropped.root / "narrower.parquet")
    assert dropped.read() == ["narrower.parquet"]
    assert dropped.source.columns() == {"n": "long", "k": "string"}, "as the first run found them"
    parquet.write_table(pa.table({"n": ["text"]}), dropped.root / "other.parquet")
    with pytest.raises(WrongColumn, match=r"expected n bigint in .*/other\.parquet, found n string"):
        dropped.read()
    times = pa.table({"n": [1], "late": pa.array([1], pa.timestamp("ns")), "order id": pa.array([1], pa.time64("us"))})
    parquet.write_table(times, dropped.root / "other.parquet")
    assert dropped.read() == ["other.parquet"], "what the stream does not read may be of any type"
    parquet.write_table(
        pa.table({"n": pa.array([1]), "k": pa.array(["a"]).dictionary_encode()}), dropped.root / "d.parquet"
    )
    assert dropped.read() == ["d.parquet"]
    parquet.write_table(pa.table({"k": pa.array([1], pa.timestamp("ns"))}), dropped.root / "other2.parquet")
    with pytest.raises(WrongColumn, match="times in nanoseconds, which Spark does not read"):
        dropped.read()
    dropped.drop("other2.parquet", "no parquet")
    with pytest.raises(WrongColumn, match=r"expected PARQUET in .*/other2\.parquet, found something else"):
        dropped.read()


def test_a_parquet_column_of_nothing_but_null_fits_any_type_and_none_can_be_found_in_it(tmp_path: Path) -> None:
    table = pa.table({"n": pa.nulls(1), "k": ["a"]})
    dropped = Dropped(tmp_path, format="parquet", schema=None)
    parquet.write_table(table, dropped.root / "a.parquet")
    with pytest.raises(WrongColumn, match=r"a\.parquet.*n has no type where all of its values are NULL"):
        dropped.source.columns()
    (tmp_path / "more").mkdir()
    dropped = Dropped(tmp_path / "more", format="parquet", schema="n DOUBLE, k STRING")
    dropped.begin()
    parquet.write_table(table, dropped.root / "a.parquet")
    assert dropped.read() == ["a.parquet"]


@pytest.mark.parametrize(
    ("said", "text", "columns"),
    [
        (
            {"format": "json"},
            '{"k": "a", "n": 1, "at": "2001-01-01T00:00:00Z", "s": {"x": [1.5]}}\n',
            {"k": "string", "n": "long", "at": "timestamp", "s": "struct"},
        ),
        ({"format": "csv", "header": True}, "k,n\na,1\n", {"k": "string", "n": "long"}),
        ({"format": "csv", "delimiter": ";"}, "a;1.5\n", {"_c0": "string", "_c1": "double"}),
        (
            {"format": "csv", "header": True, "comment": "#", "escape": "\\", "multiline": True},
            '# made, today\nk,n\n"a \\"b\\",\nc",1\n',
            {"k": "string", "n": "long"},
        ),
    ],
)
def test_columns_are_inferred_once(tmp_path: Path, said: dict[str, Any], text: str, columns: dict[str, str]) -> None:
    dropped = Dropped(tmp_path, schema=None, infer="once", **said)
    dropped.drop("a", text)
    assert dropped.source.columns() == columns
    dropped.begin()
    dropped.read()
    dropped.drop("a", "").unlink()
    assert dropped.source.columns() == columns


@pytest.mark.parametrize(
    ("said", "text", "line"),
    [
        ({}, 'a,1\n"b\nc,2\nd,3\n', 2),
        ({}, 'a,1\n"b\nc",2\n"d,""\n', 4),
        ({}, '"b\nc",2\n"d""",3', None),
        ({}, '\ufeff"b\r\n",2\r\n5" pipe,3\n"a"b,1', None),
        ({"quote": "'", "delimiter": ";"}, "'b\n\"';2\n'c;3", 3),
        ({"escape": "\\"}, '"b\\"\n";1\n"\\"', 3),
        ({"comment": "#"}, '# "no\na,1\n"b\n# "\n', None),
        ({"comment": "#"}, '# "no\na,1\n"b\n# x\n', 3),
    ],
)
def test_a_csv_record_over_lines_that_never_ends_is_named(
    tmp_path: Path, said: dict[str, Any], text: str, line: int | None
) -> None:
    dropped = Dropped(tmp_path, format="csv", multiline=True, **said)
    dropped.begin()
    (dropped.root / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    if line is None:
        assert dropped.read() == ["a.csv.gz"]
    else:
        with pytest.raises(WrongColumn, match=rf"a\.csv\.gz.*a quote is never closed.* starts in line {line}\b"):
            dropped.read()


def test_quotes_are_seen_between_two_parts_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csvlines, "PART", 2)
    assert not csvlines.has_no_quotes(Content("a", lambda: BytesIO("abc\u20acd".encode())), "\u20ac")
    assert csvlines.has_no_quotes(Content("a", lambda: BytesIO(b"abcd")), "\u20ac")


def test_a_csv_file_with_another_header_is_named(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path, format="csv", header=True)
    dropped.begin()
    dropped.drop("a.csv", "n,k\n1,a\n")
    with pytest.raises(WrongColumn, match=r"expected the header k, n in .*/a\.csv, found n, k"):
        dropped.read()
    (tmp_path / "more").mkdir()
    dropped = Dropped(tmp_path / "more", format="csv", header=True, comment="#")
    dropped.begin()
    dropped.drop("a.csv", "# made today\n\nk,n\na,1\n")
    assert dropped.read() == ["a.csv"]


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("a.csv", lambda content: content),
        ("a.csv.gz", gzip.compress),
        ("a.csv.gz", lambda content: gzip.compress(content[:3]) + gzip.compress(content[3:])),
        ("a.csv.bz2", bz2.compress),
        ("a.csv.deflate", zlib.compress),
    ],
)
def test_a_csv_file_is_looked_at_whatever_packs_it(tmp_path: Path, name: str, packed: Callable[[bytes], bytes]) -> None:
    long = b"ab,1\n" * 500_000
    dropped = Dropped(tmp_path, format="csv", header=True)
    dropped.begin()

    def drop(content: bytes) -> None:
        (dropped.root / name).write_bytes(packed(content))

    for content, problem in (
        (b"n,k\n1,a\n", "expected the header k, n in .*, found n, k"),
        (b"k,n\nK\xf6ln,1\n", "not in UTF-8: byte 0xf6 after 5 bytes"),
        ("k,n\na,1\nK\xf6".encode()[:-1], "its last character is cut off"),
        (b"k,n\n" + long + b"K\xf6ln,1\n", "not in UTF-8: byte 0xf6 after 2,500,005 bytes"),
    ):
        drop(content)
        with pytest.raises(WrongColumn, match=problem):
            dropped.read()
    for content in (b"", b"\n\n", b"k,n\n", "k,n\nKöln,1\n".encode()):
        drop(content)
        dropped.source.take_end(dropped.at)
    drop(b"k,n\n" + long)
    cut = (dropped.root / name).read_bytes()[:-9]
    (dropped.root / name).write_bytes(cut)
    if name.endswith(("gz", "bz2")):
        with pytest.raises(WrongColumn, match=re.escape(name)):
            dropped.read()


@pytest.mark.parametrize("ending", ["snappy", "lz4", "LZ4"])
@pytest.mark.parametrize("said", [{"format": "csv"}, {}, {"schema": None, "infer": "once"}], ids=["csv", "json", "any"])
def test_a_codec_is_refused_of_which_spark_reads_cut_files_as_shorter_ones(
    tmp_path: Path, ending: str, said: dict[str, Any]
) -> None:
    dropped = Dropped(tmp_path, **said)
    dropped.begin()
    dropped.drop(f"a.{ending}", "k,n\n")
    with pytest.raises(WrongColumn, match=rf"a\.{ending}, found.* cut as a shorter one; compress it as \.gz"):
        dropped.read()


@pytest.mark.parametrize("name", ["a.json.bz2", "a.BZ2"])
def test_a_bzip2_file_is_read_before_spark_passes_over_its_damaged_blocks(dropped: Dropped, name: str) -> None:
    whole = bz2.compress(b'{"n": 1}\n' * 1000)
    (dropped.root / name).write_bytes(whole)
    assert dropped.read() == [name]
    for at in (4, len(whole) // 2, len(whole) - 2):
        for content in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            (dropped.root / f"not.{name}").write_bytes(content)
            with pytest.raises(WrongColumn, match=rf"expected JSON in \S+/not\.{name}, found .*(bz2|runcated)"):
                dropped.read()


def test_columns_of_folders_are_columns_of_the_stream(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path, partitions="day DATE")
    assert dropped.source.columns() == {"k": "string", "n": "long", "day": "date"}
    dropped.begin()
    dropped.drop("day=2026-01-01/a.json")
    assert dropped.read() == ["day=2026-01-01/a.json"]


# --- Mistakes


def test_each_file_is_listed_once_whatever_links_lead_to_it(tmp_path: Path) -> None:
    """A link out of the folder is followed; one that leads back is not. A pipe is no file."""
    inside, outside = tmp_path / "in" / "a", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / f"{folder.name}.json").write_text('{"n": 1}')
    for link, to in {"in/up": "in", "in/twin": "in/a", "in/other": "out", "out/back": "in", "out/here": "out"}.items():
        (tmp_path / link).symlink_to(tmp_path / to)
    os.mkfifo(tmp_path / "in" / "pipe.json")
    files = LocalFolder("stream s", str(tmp_path / "in")).files(Wanted("*", recursive=True)).files
    assert sorted(file.path for file in files) == ["a/a.json", "other/out.json"]


def test_a_link_to_a_file_that_is_listed_itself_is_left_out(tmp_path: Path) -> None:
    root, outside = tmp_path / "in", tmp_path / "out"
    for file in ("a.csv", "a.csv.done", "part.tmp", "_old/b.csv", "_old/b.csv.done", "sub/c.csv", "sub/c.csv.done"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(file)
    outside.mkdir()
    for file in ("d.csv", "d.csv.done"):
        (outside / file).write_text(file)
    links = {
        "latest.csv": "in/a.csv",
        "twice.csv": "in/latest.csv",
        "part.csv": "in/part.tmp",
        "old.csv": "in/_old/b.csv",
    }
    links |= {"sub.csv": "in/sub/c.csv", "other.csv": "out/d.csv", "other": "out"}
    for link, to in links.items():
        (root / link).symlink_to(tmp_path / to)

    def names(**said: Any) -> list[str]:
        return sorted(one.path for one in once(LocalFolder("stream s", str(root)).files(Wanted("*.csv", **said)), ()))

    assert names() == ["a.csv", "old.csv", "other.csv", "part.csv", "sub.csv"]
    assert names(recursive=True) == ["a.csv", "old.csv", "other/d.csv", "part.csv", "sub/c.csv"]
    (root / "latest.csv.done").touch()
    assert names(done=".done") == ["a.csv"]
    (root / "a.csv.done").unlink()
    assert names(done=".done") == []


def test_two_links_to_a_file_outside_are_read_as_one_and_the_newest_may_lead_on(
    dropped: Dropped, tmp_path: Path
) -> None:
    def link(name: str, to: str) -> None:
        outside = tmp_path / to
        if not outside.exists():
            outside.write_text(f'{{"k": "{to}"}}\n')
        (dropped.root / name).unlink(missing_ok=True)
        (dropped.root / name).symlink_to(outside)

    link("current.json", "x1")
    link("day-1.json", "x1")
    assert dropped.read() == ["current.json"]
    link("current.json", "x2")
    link("day-2.json", "x2")
    assert dropped.read() == ["day-2.json"]
    link("current.json", "x3")
    with pytest.raises(HistoryGone, match=r"current\.json was changed"):  # or nothing would ever read `x3`
        dropped.read()
    link("day-3.json", "x3")
    os.utime(tmp_path / "x2")
    assert dropped.read() == ["day-3.json"]
    assert dropped.read() == []


def test_two_links_to_a_folder_outside_are_read_as_one_and_the_newest_may_lead_on(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path, recursive=True)
    dropped.begin()
    for day in ("day-1", "day-2"):
        (tmp_path / day).mkdir()
        (tmp_path / day / "a.json").write_text(f'{{"k": "{day}"}}\n')
        (dropped.root / "latest").unlink(missing_ok=True)
        for name in (day, "latest"):
            (dropped.root / name).symlink_to(tmp_path / day)
        assert dropped.read() == [f"{day}/a.json"]


def test_of_two_links_to_a_file_outside_the_one_with_its_name_is_read(dropped: Dropped, tmp_path: Path) -> None:
    """The other one is likely to lead on."""
    for name in ("orders-1.json", "orders-2.json"):
        (tmp_path / name).write_text(f'{{"k": "{name}"}}\n')
        (dropped.root / "latest.json").unlink(missing_ok=True)
        for link in (name, "latest.json"):
            (dropped.root / link).symlink_to(tmp_path / name)
        assert dropped.read() == [name]


def test_a_link_does_not_make_its_file_complete(tmp_path: Path) -> None:
    dropped = Dropped(tmp_path, done=".done")
    dropped.begin()
    (dropped.root / "latest.json").symlink_to(dropped.drop("a.json"))
    dropped.drop("latest.json.done", "")
    assert dropped.read() == []
    assert dropped.source.backlog(dropped.at).text == "nothing new (1 file without .done yet)"
    dropped.drop("a.json.done", "")
    assert dropped.read() == ["a.json"]


def test_a_link_that_was_read_beside_its_file_is_none_that_changed(
    dropped: Dropped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before links were left out; a backfill reads it by its path."""
    path = dropped.drop("a.json")
    with monkeypatch.context() as before:
        before.setattr("floodmark.connectors.sources.files.folder.os.path.realpath", lambda path, **_: str(path))
        (dropped.root / "latest.json").symlink_to(path)
        assert sorted(dropped.read()) == ["a.json", "latest.json"]
    dropped.drop("b.json", '{"k": "b"}\n')
    (dropped.root / "latest.json").unlink()
    (dropped.root / "latest.json").symlink_to(dropped.root / "b.json")
    assert dropped.read() == ["b.json"]
    source = dropped.source
    assert "latest.json" in source._folder.present(["latest.json"])


def test_a_name_that_hadoop_cannot_read_is_refused(dropped: Dropped) -> None:
    dropped.drop("12:30.json")
    with pytest.raises(Refused, match=r"without colons.*found '12:30\.json'"):
        dropped.source.news(dropped.at)


def test_a_folder_that_is_not_there_is_named(dropped: Dropped) -> None:
    dropped.root.rename(dropped.root.with_name("inn"))
    with pytest.raises(NotThereYet, match=r"no folder at .*/in yet\. Did you mean .*/inn\?"):
        dropped.source.news(dropped.at)
    dropped.root.touch()
    with pytest.raises(Refused, match=r"expected a folder at .*, found a file"):
        dropped.source.news(dropped.at)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"format": "avro", "schema": "k STRING", "infer": "once"}, "expected `schema` or `infer: once`, found both"),
        ({"format": "orc"}, "expected json, csv, parquet, avro or text"),
        ({"format": "json"}, "or `infer: once` with the format json, found neither"),
        ({"format": "json", "schema": "k STRING", "infer": "once"}, "found both"),
        ({"format": "json", "schema": "k STRNG"}, "expected columns as in CREATE TABLE.*'STRNG'"),
        ({"format": "text", "schema": "k STRING"}, "expected `schema` only with the format json or csv or parquet"),
        ({"format": "json", "schema": "k STRING", "header": True}, "expected `header` only with the format csv"),
        ({"format": "text", "partitions": "value STRING"}, "found value in both"),
        ({"format": "text", "partitions": "v ARRAY<INT>"}, "expected types that a folder's name can have"),
        ({"format": "text", "path": "gs://bucket/in"}, "expected a folder of this machine's file system"),
        ({"format": "text", "done": "a/b"}, "expected a suffix such as .done"),
        ({"format": "text", "settle": "-1 seconds"}, "expected"),
        ({"format": "text", "overwritten": "yes"}, "expected stop"),
    ],
)
def test_a_mistake_in_its_keys_is_named(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        WrittenFiles.model_validate({"path": "/lake/in", **said})


def test_the_list_is_synced_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    opened = Path("/proc/self/fd")
    monkeypatch.setattr(journals.os, "fsync", lambda handle: synced.append(str((opened / str(handle)).readlink())))
    Journal.load(tmp_path / "files.jsonl").write(0, 0, [])
    assert synced == [str(tmp_path / "files.jsonl"), str(tmp_path)]
