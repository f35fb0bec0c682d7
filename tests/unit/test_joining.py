"""Which files delta-rs may join: those whose paths it spells as the log does."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableOptimizer
from support.aged import age
from support.flow import rows_of

from floodmark.errors import RunFailed, TableBroken
from floodmark.ledger.delta import damage, joining, tablelog, tables

JAVA = "_-!.~'()*,;:$&+=@/[]"  # beside letters and digits, of any script: what Spark leaves as it is in a log


def as_spark(address: Path, folder: str) -> Path:
    """A table of two files in a partition's folder, with paths as Spark's log has them."""
    for n in range(2):
        write_deltalake(address, pa.table({"k": ["z"], "n": [n]}), mode="append", partition_by=["k"])
    (address / "k=z").rename(address / folder)
    said = "".join(c if c.isalnum() or not c.isascii() or c in JAVA else quote(c) for c in folder)
    for entry in (address / "_delta_log").glob("*.json"):
        spelt = json.dumps(said, ensure_ascii=False)[1:-1]
        entry.write_text(entry.read_text().replace("k=z/", f"{spelt}/"), encoding="utf-8")
    return address


@pytest.mark.parametrize(
    "folder", ["k=a b", "k=a%3Ab", "k=a%2Fb", "k=a%25b", "k=a+b,c;d", "k=a@b$c&d!", 'k=a"|^`{}<>#b']
)
def test_paths_that_delta_rs_spells_as_spark_does_are_joined(tmp_path: Path, folder: str) -> None:
    address = as_spark(tmp_path / "t", folder)
    assert joining.odd_paths(DeltaTable(address)) == ""
    joining.compact(str(address))
    assert len(DeltaTable(address).file_uris()) == 1
    assert sorted(row["n"] for row in rows_of(str(address))) == [0, 1]


@pytest.mark.parametrize("folder", ["k=München", "k=San José", "k=🌊", "k=a~b", "k=a*b", "k=a[b", "k=a]b"])
def test_paths_that_delta_rs_would_spell_otherwise_are_left_to_spark(tmp_path: Path, folder: str) -> None:
    table = DeltaTable(as_spark(tmp_path / "t", folder))
    assert joining.odd_paths(table).startswith("paths that delta-rs spells otherwise, such as k=")


@pytest.mark.parametrize(
    ("path", "odd"), [("k=a/p.parquet", False), ("%61.parquet", True), ("k=a%7Eb", True), ("k=a%C3%BC", True)]
)
def test_a_letter_that_is_escaped_otherwise_than_by_spark_counts_as_spelled_otherwise(path: str, odd: bool) -> None:
    assert joining.is_odd(path) == odd


def test_a_file_removed_under_another_path_than_the_log_has_it_is_told(tmp_path: Path) -> None:
    address = as_spark(tmp_path / "t", "k=München")
    with pytest.raises(TableBroken, match=r"readers see rows twice; .*TO VERSION AS OF 1"):
        joining.compact(str(address))


def times(address: Path) -> dict[str, int]:
    """The entries of a table's log, with the times of their files."""
    return {file.name: file.stat().st_mtime_ns for file in sorted((address / "_delta_log").glob("*.json"))}


def old_table(address: Path) -> dict[str, int]:
    """A table with a checkpoint, whose log delta-rs cuts when it joins files."""
    for n in range(3):
        write_deltalake(address, pa.table({"n": [n]}), mode="append")
    DeltaTable(address).create_checkpoint()
    age(str(address), 60)
    return times(address)


def watched(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, after: bool) -> None:
    """Let `act` come before delta-rs joins files, or after."""
    join = TableOptimizer.compact

    def watch(self: TableOptimizer, *args: Any, **named: Any) -> Any:
        if after:
            join(self, *args, **named)
        act()
        return None if after else join(self, *args, **named)

    monkeypatch.setattr(TableOptimizer, "compact", watch)


def test_log_entries_keep_their_times_before_and_after_files_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = tmp_path / "t"
    before = old_table(address)
    seen: list[dict[str, int]] = []
    watched(monkeypatch, lambda: seen.append(times(address)), after=False)
    joining.compact(str(address))
    assert seen == [before]
    assert before.items() <= times(address).items()
    assert not (address / damage.HELD).exists()


def _moved(address: str, version: int) -> tablelog.Moved | None:
    return tablelog.moved(address, version, version)[version]


def test_entries_that_are_missing_while_files_are_joined_do_not_count_as_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, told = tmp_path / "t", list[str]()
    old_table(address)

    def look() -> None:
        assert not tables.local_entry(str(address), 1).exists()
        with pytest.raises(RunFailed, match=r"while upkeep joins files\. Retry") as found:
            list(tablelog.data_commits(str(address), 1, 1))
        told.append(str(found.value))
        with pytest.raises(RunFailed, match=r"a part of its log is .* while upkeep joins files\. Retry"):
            tables.check_gone(str(address), FileNotFoundError("version 1"))
        for ask in (_moved, tablelog.log_sum):
            with pytest.raises(RunFailed, match=r"while upkeep joins files\. Retry"):
                ask(str(address), 1)
            assert ask(str(address), 99) is None, "that is held nowhere"
        assert [one.gone for one in tablelog.data_commits(str(address), 99, 99)] == [True], "that is held nowhere"

    watched(monkeypatch, look, after=True)
    joining.compact(str(address))
    assert told
    assert [one.gone for one in tablelog.data_commits(str(address), 1, 1)] == [False]


@pytest.mark.parametrize("another", [False, True])
def test_what_a_copy_of_the_log_that_stays_does_not_hold_back_is_gone(tmp_path: Path, another: bool) -> None:
    """another: the log of another table has come to the place since."""
    address, fault = tmp_path / "t", FileNotFoundError("version 1")
    old_table(address)
    log, held = address / "_delta_log", address / damage.HELD
    shutil.copytree(log, held)
    if another:
        (log / f"{2:020}.json").write_bytes((log / f"{1:020}.json").read_bytes())
    else:
        (held / f"{1:020}.json").unlink()
    (log / f"{1:020}.json").unlink()
    tables.check_gone(str(address), fault)
    assert [one.gone for one in tablelog.data_commits(str(address), 1, 1)] == [True]
    assert (_moved(str(address), 1), tablelog.log_sum(str(address), 1)) == (None, None)


def test_an_entry_that_came_back_before_it_was_looked_for_elsewhere_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_table(tmp_path / "t")
    read, tries = Path.read_bytes, list[Path]()

    def first_missing(file: Path) -> bytes:
        tries.append(file)
        if len(tries) == 1:
            raise FileNotFoundError(file)
        return read(file)

    monkeypatch.setattr(Path, "read_bytes", first_missing)
    assert [one.gone for one in tablelog.data_commits(str(tmp_path / "t"), 1, 1)] == [False]


def test_after_a_kill_the_log_has_its_entries_and_their_times_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, copy = tmp_path / "t", tmp_path / "copy"
    before = old_table(address)
    watched(monkeypatch, lambda: shutil.copytree(address, copy), after=True)
    joining.compact(str(address))
    assert len(times(copy)) < len(before)
    damage.restore_log(copy)
    assert before.items() <= times(copy).items()
    assert not (copy / damage.HELD).exists()


def test_a_log_whose_newest_held_entry_was_cleaned_up_since_gets_the_others_back(tmp_path: Path) -> None:
    address = tmp_path / "t"
    for n in range(4):
        write_deltalake(address, pa.table({"n": [n]}), mode="append")
    before, log = times(address), address / "_delta_log"
    shutil.copytree(log, address / damage.HELD)
    (address / damage.HELD / f"{3:020}.json").unlink()
    DeltaTable(address).create_checkpoint()
    for version in (0, 2):
        (log / f"{version:020}.json").unlink()
    damage.restore_log(address)
    assert times(address) == before


@pytest.mark.parametrize("cut", [True, False])
def test_held_entries_of_a_table_that_was_put_back_and_written_to_are_not_put_back(tmp_path: Path, cut: bool) -> None:
    address = tmp_path / "t"
    old_table(address)
    log = address / "_delta_log"
    shutil.copytree(log, address / damage.HELD)
    (log / f"{2:020}.json").write_bytes((log / f"{1:020}.json").read_bytes())
    (log / f"{0:020}.json").unlink()
    if cut:
        (log / f"{1:020}.json").unlink()
    damage.restore_log(address)
    assert not (log / f"{0:020}.json").exists() and not (address / damage.HELD).exists()


def without_hard_links(monkeypatch: pytest.MonkeyPatch, at_rename: Callable[[Path], None]) -> None:
    """A file system that has no hard links. `at_rename`: what comes before a file gets its name."""
    rename = Path.rename

    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    def watch(self: Path, target: Path) -> Path:
        at_rename(self)
        return rename(self, target)

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr(Path, "rename", watch)


def test_without_hard_links_readers_see_whole_entries_with_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, seen = tmp_path / "t", list[Path]()
    before = old_table(address)
    whole = {name: (address / "_delta_log" / name).read_text() for name in before}
    without_hard_links(monkeypatch, seen.append)
    joining.compact(str(address))
    assert {file.name for file in seen if file.parent.name == "_delta_log"} >= {f".{n:020}.json.new" for n in range(2)}
    assert before.items() <= times(address).items()
    assert {name: (address / "_delta_log" / name).read_text() for name in before} == whole


def test_what_a_kill_leaves_of_a_copy_is_not_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = tmp_path / "t"
    old_table(address)
    without_hard_links(monkeypatch, killed)
    with pytest.raises(KeyboardInterrupt):
        joining.compact(str(address))
    (address / damage.HELD / f".{0:020}.json.new").write_text("{half")
    damage.restore_log(address)
    assert not [*(address / "_delta_log").glob(".*.new")] and not (address / damage.HELD).exists()
    assert len(rows_of(str(address))) == 3


def killed(file: Path) -> None:
    raise KeyboardInterrupt


def test_held_entries_of_another_log_are_not_put_back(tmp_path: Path) -> None:
    address = tmp_path / "t"
    old_table(address)
    log = address / "_delta_log"
    shutil.copytree(log, address / damage.HELD)
    (log / f"{2:020}.json").unlink()
    damage.restore_log(address)
    assert not (log / f"{2:020}.json").exists()
