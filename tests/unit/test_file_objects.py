"""Files in an object store: which are read, once, and what is noticed of changes. The store is in memory, by the same
client; `services/test_object_store.py` has a real one."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pytest
from obstore.store import MemoryStore, ObjectStore
from pyarrow import parquet

from floodmark.connectors.sources.files import objects
from floodmark.connectors.sources.files.folder import Wanted
from floodmark.connectors.sources.files.journal import Listed, Offset
from floodmark.connectors.sources.files.objects import FEW, ObjectFolder, store_at
from floodmark.connectors.sources.files.options import WrittenFiles
from floodmark.connectors.sources.files.source import FilesSource
from floodmark.core.relay.manifests import MANIFESTS, Manifest, manifest_name
from floodmark.core.relay.positions import Position
from floodmark.core.rules.rule import Stream
from floodmark.errors import HistoryGone, NotThereYet, Refused, RunFailed, WrongColumn

if TYPE_CHECKING:
    from obstore import ObjectMeta

LAKE = "s3a://lake/incoming"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    found = MemoryStore()
    monkeypatch.setattr(objects, "store_at", lambda what, address: found)
    return found


class Dropped:
    """A source over the store, and the offset of what is read."""

    def __init__(self, store: ObjectStore, keep: Path, **said: Any):
        self.store, self.keep = store, keep
        self.said = {"path": LAKE, "format": "json", "schema": "k STRING, n BIGINT", **said}
        self.at = self.source.take_start()

    @property
    def source(self) -> FilesSource:
        options = WrittenFiles.model_validate(self.said).model_dump(mode="json")
        return FilesSource("events", Stream(kind="files", address=LAKE, options=options), self.keep)

    def put(self, path: str, content: bytes = b'{"k": "a", "n": 1}\n') -> None:
        obstore.put(self.store, path, content)

    def read(self) -> list[str]:
        source = self.source
        end = source.take_end(self.at)
        files = source._journal.files[Offset.parse(self.at).files : Offset.parse(end).files]
        self.at = end
        return [one.file.path for one in files]


@pytest.fixture
def dropped(store: ObjectStore, tmp_path: Path) -> Dropped:
    return Dropped(store, tmp_path)


def names(store: ObjectStore, **wanted: Any) -> list[str]:
    return sorted(one.path for one in ObjectFolder("stream s", LAKE, store).files(Wanted(**wanted)).files)


def unmarked(store: ObjectStore, **wanted: Any) -> int:
    return len(ObjectFolder("stream s", LAKE, store).files(Wanted(**wanted)).waiting)


def test_the_wanted_objects_are_listed(store: ObjectStore) -> None:
    for path in ("a.json", "b b+%.json", "c.csv", "_h/d.json", "sub/_e.json", "sub/f.json", "sub/f.json.done"):
        obstore.put(store, path, b"x")
    assert names(store) == ["a.json", "b b+%.json", "c.csv"]
    assert names(store, pattern="*.json", recursive=True) == ["a.json", "b b+%.json", "sub/f.json"]
    assert names(store, recursive=True, done=".done") == ["sub/f.json"]
    assert names(store, done="_SUCCESS") == []
    obstore.put(store, "_SUCCESS", b"")
    assert names(store, done="_SUCCESS") == ["a.json", "b b+%.json", "c.csv"]
    assert names(store, recursive=True, done="_SUCCESS") == [
        "a.json", "b b+%.json", "c.csv", "sub/f.json", "sub/f.json.done"
    ]  # fmt: skip
    obstore.delete(store, "_SUCCESS")
    obstore.put(store, "sub/_SUCCESS", b"")
    assert names(store, recursive=True, done="_SUCCESS") == ["sub/f.json", "sub/f.json.done"]
    assert unmarked(store, recursive=True, done="_SUCCESS") == 3
    obstore.put(store, "a:b", b"x")
    assert unmarked(store, recursive=True, done="_SUCCESS") == 4
    with pytest.raises(Refused, match="expected file names without colons"):
        names(store)


def test_a_marker_above_counts_for_objects_that_are_no_newer(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of an earlier job tells nothing of what a later job puts in a folder below."""
    second = {"_SUCCESS": 5, "day=1/a": 4, "day=2/b": 5, "day=3/c": 6, "day=4/x/d": 7, "day=4/_SUCCESS": 6, "e": 9}
    listed = [
        {"path": path, "size": 1, "e_tag": "e", "last_modified": datetime(2026, 1, 1, 0, 0, at, tzinfo=UTC)}
        for path, at in second.items()
    ]
    monkeypatch.setattr(ObjectFolder, "_listed", lambda *_: listed)
    assert names(store, recursive=True, done="_SUCCESS") == ["day=1/a", "day=2/b", "e"]
    listed[5]["last_modified"] = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)
    assert names(store, recursive=True, done="_SUCCESS") == ["day=1/a", "day=2/b", "day=4/x/d", "e"]


def test_markers_of_folders_are_no_files(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3's console and Hadoop make empty objects `in/` and `in/sub/`, whose last slash the client leaves out."""
    for path, content in {"a.json": b"x", "empty.json": b"", "sub/b.json": b"x"}.items():
        obstore.put(store, path, content)
    there, at = list(obstore.list(store).collect()), datetime(2026, 1, 1, tzinfo=UTC)
    markers = [{"path": path, "size": 0, "e_tag": "e", "last_modified": at} for path in ("", "sub", "other")]
    monkeypatch.setattr(ObjectFolder, "_listed", lambda *_: [*markers, *there])
    assert names(store, recursive=True) == ["a.json", "empty.json", "sub/b.json"]


def test_each_object_is_read_once_as_soon_as_it_is_listed(dropped: Dropped) -> None:
    assert not dropped.source.news(dropped.at)
    dropped.put("b.json")
    assert dropped.source.news(dropped.at)
    assert dropped.source.backlog(dropped.at).text == "1 file, 19 bytes"
    assert dropped.read() == ["b.json"]
    dropped.put("a.json")
    assert dropped.read() == ["a.json"]
    assert dropped.read() == []
    obstore.delete(dropped.store, "a.json")
    assert dropped.read() == []


def test_a_store_that_lists_milliseconds_is_asked_for_no_new_object(
    dropped: Dropped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MinIO's answers about an object alone are in whole seconds. The store in memory lists parts of them, too."""
    asked: list[str] = []

    def head(store: ObjectStore, path: str) -> ObjectMeta:
        asked.append(path)
        found = obstore.get(store, path).meta
        return {**found, "last_modified": found["last_modified"].replace(microsecond=0)}

    monkeypatch.setattr(obstore, "head", head)
    folder, begin = ObjectFolder("stream s", LAKE, dropped.store), dropped.at
    for path in ("a.json", "b.json"):
        dropped.put(path)
    assert sorted(dropped.read()) == ["a.json", "b.json"]
    assert asked == []
    assert folder.present(["a.json", "b.json"]) == {one.path: one for one in folder.files(Wanted()).files}
    session: Any = None
    source = dropped.source
    monkeypatch.setattr(source, "_rows", lambda _, files: [one.path for one in files])
    assert sorted(source.frame(session, begin, dropped.at)) == ["a.json", "b.json"]
    assert source._comparison.proven == {}


def test_objects_that_were_listed_with_milliseconds_are_listed_in_seconds_once(dropped: Dropped) -> None:
    dropped.put("a.json")
    (found,) = ObjectFolder("stream s", LAKE, dropped.store).files(Wanted()).files
    journal, later = dropped.source._journal, found.modified + 821_000_000
    journal.write(0, 0, [Listed(replace(found, modified=later, changed=later), str(found.id))])
    dropped.at = journal.offset(1, 0).line()
    assert dropped.read() == []
    assert [one.file for one in dropped.source._journal.files] == [found]
    before = (dropped.keep / "files.jsonl").read_bytes()
    assert dropped.read() == []
    assert (dropped.keep / "files.jsonl").read_bytes() == before


def test_objects_of_a_target_are_refused(dropped: Dropped) -> None:
    dropped.said["recursive"] = True
    dropped.put("data/a.json")
    assert dropped.read() == ["data/a.json"]
    dropped.put(f"{MANIFESTS}/{manifest_name(0)}", Manifest(0, 0, Position("x"), (), "k STRING", "").text().encode())
    with pytest.raises(Refused, match=f"found {LAKE} with files of {LAKE}, a target of a rule"):
        dropped.read()


def test_an_object_that_was_overwritten_is_noticed(dropped: Dropped) -> None:
    dropped.put("a.json")
    dropped.read()
    source = dropped.source
    (read,) = source._journal.files
    dropped.put("a.json", b'{"k": "b", "n": 1}\n')  # the size stays
    with pytest.raises(
        HistoryGone, match=rf"a.json was changed after it was read\. Read were 19 .* with ETag {read.sum};"
    ):
        dropped.read()
    dropped.said["overwritten"] = "skip"
    assert dropped.read() == []


@pytest.mark.parametrize("many", [FEW - 1, FEW, FEW + 1])
def test_those_that_are_there_are_found_one_by_one_or_by_a_listing(store: ObjectStore, many: int) -> None:
    folder, paths = ObjectFolder("stream s", LAKE, store), [f"sub/{i}.json" for i in range(many)]
    for path in (*paths, "other.json"):
        obstore.put(store, path, b"x")
    found = folder.present([*paths[1:], "gone.json"])
    assert sorted(found) == sorted(paths[1:])
    obstore.put(store, paths[-1], b"y")
    assert {path for path, file in folder.present(paths).items() if file != found.get(path)} == {paths[0], paths[-1]}


def test_columns_are_those_of_its_first_object_and_others_must_fit(store: ObjectStore, tmp_path: Path) -> None:
    whole = io.BytesIO()
    parquet.write_table(pa.table({"k": ["a"] * 100_000, "n": range(100_000)}), whole)
    obstore.put(store, "a.parquet", whole.getvalue())
    dropped = Dropped(store, tmp_path, format="parquet", schema=None)
    assert dropped.source.columns() == {"k": "string", "n": "long"}
    assert dropped.read() == ["a.parquet"]
    other = io.BytesIO()
    parquet.write_table(pa.table({"k": ["a"], "n": ["b"]}), other)
    dropped.put("b.parquet", other.getvalue())
    with pytest.raises(WrongColumn, match=rf"expected n bigint in {LAKE}/b.parquet, found n string"):
        dropped.read()


def test_columns_are_inferred_of_what_is_compressed(store: ObjectStore, tmp_path: Path) -> None:
    obstore.put(store, "a.json.gz", gzip.compress(json.dumps({"k": "a", "n": 1.5}).encode() + b"\n"))
    dropped = Dropped(store, tmp_path, schema=None, infer="once")
    assert dropped.source.columns() == {"k": "string", "n": "double"}


def test_content_is_read_from_any_place(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "AHEAD", 7)
    content = bytes(range(256))
    obstore.put(store, "a", content)
    folder = ObjectFolder("stream s", LAKE, store)
    with folder.content("a").open() as found:
        assert (found.seek(-3, 2), found.read(), found.read(1)) == (253, content[253:], b"")
        assert (found.seek(10), found.read(20), found.seek(-1, 1), found.read(1)) == (10, content[10:30], 29, b"\x1d")
    with pytest.raises(FileNotFoundError):
        folder.content("b").open()


SAYS = "Server returned non-2xx status code: {}: <Error><Code>{}</Code><Message>&#34;x&#34; is wrong.</Message></Error>"


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        (
            SAYS.format("403 Forbidden", "SignatureDoesNotMatch"),
            Refused,
            'SignatureDoesNotMatch: "x" is wrong. Correct',
        ),
        (SAYS.format("404 Not Found", "NoSuchBucket"), NotThereYet, "NoSuchBucket: .* Create the bucket"),
        (SAYS.format("400 Bad Request", "AuthorizationHeaderMalformed"), Refused, "Set AWS_REGION"),
        (SAYS.format("400 Bad Request", "ExpiredToken"), RunFailed, "ExpiredToken: .* Renew AWS_SESSION_TOKEN"),
        (SAYS.format("400 Bad Request", "InvalidToken"), Refused, "Correct AWS_ACCESS_KEY_ID"),
        (SAYS.format("403 Forbidden", "RequestTimeTooSkewed"), RunFailed, "Set the clock of this machine, then retry"),
        ("HTTP error: builder error\n\nDebug source:\nX", Refused, "builder error. Set AWS_ALLOW_HTTP=true"),
        ("Error performing PUT http://169.254.169.254/latest", Refused, "Set AWS_ACCESS_KEY_ID"),
        ("HTTP error: error sending request", RunFailed, "whether the store is up, then retry"),
    ],
)
def test_what_the_store_refuses_is_named_with_what_to_do(text: str, kind: type[Exception], problem: str) -> None:
    with (
        pytest.raises(kind, match=rf"^stream s: {LAKE} cannot be accessed: .*{problem}"),
        objects.explained("stream s", LAKE),
    ):
        raise obstore.exceptions.GenericError(text)


def test_an_endpoint_that_is_no_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(
        Refused, match="expected http:// or https:// and a host in AWS_ENDPOINT_URL, found 'localhost:9000'"
    ):
        store_at("stream s", LAKE)
