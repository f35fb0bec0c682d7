"""Log entries in a store: with how many requests and connections they are read, and that each is read whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.shelf import Shelf, shelf

from floodmark.ledger.delta import tablelog, tables
from floodmark.ledger.delta.storelogs import USUAL, WAYS, StoredLog

ENTRIES = 40
# Some entries of the middle wait for each other, so that they have to be asked for at the same time.
WAITS = tuple(f"{version:020}.json" for version in range(WAYS, 2 * WAYS))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    for version in range(ENTRIES):
        _write(tmp_path, version, json.dumps({"add": {"path": str(version), "size": version, "dataChange": True}}))
    with shelf(tmp_path, WAITS) as found:
        for name, value in found.env.items():
            monkeypatch.setenv(name, value)
        yield found


def _write(root: Path, version: int, text: str) -> None:
    file = tables.local_entry(str(root / "t"), version)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_many_entries_are_read_at_the_same_time_by_one_client_with_one_request_each(store: Shelf) -> None:
    found = list(tablelog.data_commits(store.address("t"), 0, ENTRIES))
    assert [(one.version, one.size, one.gone) for one in found[:-1]] == [(n, n, False) for n in range(ENTRIES)]
    assert (found[-1].version, found[-1].gone) == (ENTRIES, True)
    counts = store.counts()
    assert not counts.alone
    there = [name for name in counts.got if name != f"{ENTRIES:020}.json"]
    assert (sorted(there), counts.looked) == ([f"{version:020}.json" for version in range(ENTRIES)], [])
    assert counts.connections <= WAYS + 1


def test_who_needs_the_first_entry_alone_reads_no_other(store: Shelf) -> None:
    assert next(tablelog.data_commits(store.address("t"), 3, ENTRIES)).version == 3
    assert store.counts().got == [f"{3:020}.json"]


def test_all_that_read_a_range_of_entries_read_them_so(store: Shelf) -> None:
    address = store.address("t")
    assert list(tablelog.moved(address, 0, ENTRIES - 1)) == list(range(ENTRIES))
    assert [version for version, _ in tablelog.logged(address, range(ENTRIES))] == list(range(ENTRIES))
    counts = store.counts()
    assert (counts.alone, len(counts.got), counts.looked) == (False, 2 * ENTRIES, [])


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("size", [0, 1, USUAL - 1, USUAL, USUAL + 1, 2 * USUAL + 3])
def test_an_entry_of_any_size_is_read_whole(store: Shelf, tmp_path: Path, size: int, stored: bool) -> None:
    text = ("0123456789" * (size // 10 + 1))[:size]
    _write(tmp_path, 5, text)
    assert StoredLog(store.address("t") if stored else str(tmp_path / "t"), [4, 5, 6]).entry(5) == text.encode()
