"""A target's files in an object store, which is in memory here; `spark/test_object_target.py` has a real one."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from obstore.store import MemoryStore

from floodmark.connectors.targets.files.folder import Folder
from floodmark.connectors.targets.files.objects import ObjectPlace
from floodmark.core.relay.manifests import DATA, Listed, Manifest, data_name, manifest_name, staged_name
from floodmark.core.relay.positions import Position
from floodmark.errors import Fenced, LedgerBroken, TableBroken

PLACE = "s3a://lake/kept"


def manifest(number: int, first: int = 0, *files: Listed) -> Manifest:
    return Manifest(number, first, Position("x", 1, "t", number, number, "h"), files, "k STRING", "")


def listed(number: int) -> Listed:
    return Listed(data_name(number, "csv"), staged_name(number, "0a1b2c3d", "csv"), 1, 2, "s")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> ObjectPlace:
    found = ObjectPlace(PLACE, MemoryStore())
    monkeypatch.setattr("floodmark.connectors.targets.files.folder.place_at", lambda address, place: found)
    return found


def test_a_manifest_is_put_once_and_says_what_counts(place: ObjectPlace) -> None:
    folder = Folder(f"files://{PLACE}", PLACE)
    assert (folder.newest(), place.foreign()) == (None, None)
    folder.put(manifest(0), lambda: None)
    with pytest.raises(Fenced, match="another relay was faster"):
        folder.put(manifest(0, 0, listed(0)), lambda: None)
    assert folder.newest() == manifest(0)
    assert place.foreign() == f"manifests/{manifest_name(0)}"
    folder.put(manifest(1, 0, listed(1)), lambda: None)
    with pytest.raises(TableBroken, match=r"expected the file 000000000001\.csv of 000000000001\.json, found none"):
        folder.files()
    with place.new(f"{DATA}/{listed(1).staged}") as out:
        out.write(b"k\n")
    assert folder.paths() == [f"{DATA}/{listed(1).staged}"]
    folder.tidy(manifest(1))
    assert place.names(DATA) == [listed(1).name]
    assert [one.path for one in folder.files()] == [f"s3://lake/kept/data/{listed(1).name}"]
    folder.put(manifest(2, 2), lambda: None)
    folder.tidy(manifest(2, 2))
    assert (folder.files(), place.names(DATA)) == ([], [])
    folder.place.put_new(f"manifests/{manifest_name(3)}", b"{", lambda: None)
    with pytest.raises(LedgerBroken, match=r"000000000003\.json cannot be read"):
        folder.newest()


def test_what_was_written_stays_though_the_writer_fills_its_buffer_again(place: ObjectPlace) -> None:
    """The client sends parts of 10 MiB; Arrow's writer of CSV has one buffer for all."""
    written = BytesIO()
    with place.new("data/a") as out:
        buffer: Any = bytearray(1 << 20)
        for number in range(25):
            buffer[:] = bytes([number]) * len(buffer)
            out.write(memoryview(buffer))
            written.write(buffer)
    with place.opened("data/a") as found:
        assert found.read() == written.getvalue()


def test_what_failed_leaves_no_object(place: ObjectPlace) -> None:
    with pytest.raises(TypeError), place.new("data/a") as out:
        out.write("no bytes")  # type: ignore[arg-type]
    assert place.names(DATA) == []


def test_an_object_that_is_gone_is_no_error_of_the_store(place: ObjectPlace) -> None:
    with pytest.raises(FileNotFoundError):
        place.content("manifests/x")
    with pytest.raises(FileNotFoundError):
        place.rename("data/x", "data/y")
    assert not place.has("data/x")
    place.remove("data/x")
