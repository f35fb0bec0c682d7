"""Checksums, what stores say, torn log entries, and the order of syncs: all without Spark."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from support.damaging import damage
from test_ledger import commit, first, intent

from floodmark.connectors import preflight
from floodmark.connectors.delta import lookups
from floodmark.connectors.delta.lookups import LookupTable
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.delta.source import DeltaSource
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.recovery import check_tables
from floodmark.core.rules.model import Lookup
from floodmark.core.rules.rule import Stream
from floodmark.errors import HistoryGone, LedgerBroken, RunFailed, TableBroken
from floodmark.ledger.delta import datafiles, syncing, tablelog, tables
from floodmark.ledger.delta.damage import log_faults, rename_torn_entries, unreadable_checkpoint, why_unreadable
from floodmark.ledger.delta.hadoopsums import fits, sums_of
from floodmark.ledger.delta.storefaults import cannot_take, damaged, of_client, of_store, passing
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.spark.write.appending import Appending

COLUMNS = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'


def test_hadoops_checksums() -> None:
    # As Hadoop 3.4.2 wrote it beside a file of 600 bytes `x`.
    known = bytes.fromhex("6372630000000200") + sums_of(b"x" * 600)[8:]
    assert sums_of(b"x" * 600) == known and len(known) == 16
    assert fits(b"x" * 600, known)
    assert fits(b"", sums_of(b"")) and fits(b"x" * 600, sums_of(b"x" * 600, 64))
    for data, sums in ((b"x" * 599 + b"y", known), (b"x" * 512, known), (b"x" * 600, known[:-1]), (b"x", b"")):
        assert not fits(data, sums)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("java.io.IOException: No space left on device", "the disk is full"),
        ("Generic LocalFileSystem error: Unable to create file: Read-only file system (os error 30)", "read-only"),
        ("(Disk quota exceeded)", "quota"),
        ("no such table", None),
    ],
)
def test_why_a_store_takes_nothing(text: str, why: str | None) -> None:
    found = cannot_take(text)
    assert found is None if why is None else why in str(found)


def test_what_may_answer_the_next_time_is_no_damage() -> None:
    failed = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a"
    assert damaged(f"{failed}\nChecksum error: file:/a at 0")
    assert damaged(f"{failed}\njava.io.IOException: could not read page Page [bytes.size=16000]")
    assert damaged(f"{failed}\nfile:/a is not a Parquet file. Expected magic number at tail, but found [11, 8, 49, 49]")
    assert passing("[FAILED_READ_FILE] s3a://a: connection timed out")
    assert not damaged("[FAILED_READ_FILE] s3a://a: connection timed out")


@pytest.mark.parametrize(
    "code", ["EIO", "ESTALE", "EHOSTDOWN", "ENOTCONN", "ESHUTDOWN", "ENOMEM", "EPIPE", "ETIMEDOUT", "EHOSTUNREACH"]
)
def test_what_a_network_store_says_while_it_is_away_is_no_damage(code: str) -> None:
    said = os.strerror(getattr(errno, code))
    assert passing(f"Generic LocalFileSystem error: {said} (os error {getattr(errno, code)})")
    assert not damaged(f"[FAILED_READ_FILE.NO_HINT] /mnt/a: java.io.IOException: {said}")


def test_a_table_that_asks_for_more_than_the_client_knows_is_not_called_harmed() -> None:
    said = str(
        tables._unreadable("/lake/t", Exception("Kernel error: Unsupported: Feature 'brandNew' is not supported"))
    )
    assert "Feature 'brandNew' is not supported; nothing is corrupt" in said and "put back" not in said


def test_a_file_that_could_not_be_read_is_damaged_only_where_something_says_so() -> None:
    assert not damaged("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://a/b.parquet.")
    assert not damaged("[FAILED_READ_FILE] s3a://a: Unable to execute HTTP request: The server failed to respond")


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Three versions, the first without rows."""
    address = str(tmp_path / "table")
    tables.create(address, COLUMNS, {})
    for n in (1, 2):
        write_deltalake(address, pa.table({"n": [n]}), mode="append")
    return address


def test_keys_that_have_expired_are_a_reason_to_retry() -> None:
    text = "The provided token has expired. (Service: S3, Status Code: 400, Request ID: x) ExpiredToken"
    assert of_client(text.replace("ExpiredToken", "")) is not None and of_client(text) is None
    assert passing(text) and not damaged(text)


def test_files_that_no_version_names_go_with_their_checksums(tmp_path: Path) -> None:
    names = ("k=a b/part-0.parquet", "part-1.parquet")
    for name in names:
        for file in (tmp_path / name, (tmp_path / name).with_name(f".{Path(name).name}.crc")):
            file.parent.mkdir(exist_ok=True)
            file.write_text("x")
    written = SimpleNamespace(
        _address=str(tmp_path), _actions=lambda: [{"add": {"path": quote(name)}} for name in names]
    )
    for _ in range(2):
        Appending.discard(cast("Appending", written))
        assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


FAILING = (errno.EIO, errno.EMFILE, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT)


@pytest.mark.parametrize("number", FAILING)
@pytest.mark.parametrize(
    "ask",
    [
        lambda table: [*tablelog.data_commits(table, 1, 1)],
        lambda table: tables.logged_between(table, 1),
        lambda table: tablelog.moved(table, 1, 1),
        lambda table: tablelog.log_sum(table, 1),
        lambda table: datafiles.as_of(table, 0, 1),
    ],
)
def test_an_entry_that_cannot_be_read_now_is_not_gone(
    table: str, number: int, ask: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(file: Path) -> bytes:
        raise OSError(number, os.strerror(number), str(file))

    monkeypatch.setattr(Path, "read_bytes", fails)
    with pytest.raises(RunFailed, match=r"the table cannot be read now: .*; fix the disk or the store, then retry"):
        ask(table)


@pytest.mark.parametrize("number", FAILING)
def test_a_checkpoint_that_cannot_be_read_now_is_not_told_as_damaged(
    table: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(file: Path) -> None:
        raise OSError(number, os.strerror(number), str(file))

    DeltaTable(table).create_checkpoint()
    newest = DeltaTable(table).version()
    assert unreadable_checkpoint(table, newest) is None
    monkeypatch.setattr(pq, "ParquetFile", fails)
    for ask in (lambda: unreadable_checkpoint(table, newest), lambda: why_unreadable(table)):
        with pytest.raises(RunFailed, match=r"parquet cannot be read now: .*; fix the disk or the store, then retry"):
            ask()


def test_a_version_of_a_lookup_that_cannot_be_read_now_is_not_gone(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup = LookupTable("zones", Lookup(kind="delta", address=table))
    lookup.check_readable(0)
    with pytest.raises(HistoryGone, match="version 9 is no longer in its log"):
        lookup.check_readable(9)

    def fails(*_: object, **__: object) -> None:
        raise DeltaError("Generic LocalFileSystem error: Too many open files (os error 24)")

    monkeypatch.setattr(lookups, "DeltaTable", fails)
    with pytest.raises(RunFailed, match="the table cannot be read now"):
        lookup.check_readable(0)


def test_an_older_version_that_cannot_be_read_now_is_not_gone() -> None:
    with pytest.raises(RunFailed, match="cannot be read now"):
        tables.check_gone("/lake/t", DeltaError("Generic LocalFileSystem error: Too many open files (os error 24)"))
    tables.check_gone("/lake/t", DeltaError("Invalid table version: 1"))


@pytest.mark.parametrize(
    "said",
    [
        "Generic S3 error: Server returned non-2xx status code: 400 Bad Request: <Code>SomethingNew</Code>",
        "Kernel error: Arrow error: External: Generic S3 error: Server returned 403 Forbidden",
        "Kernel error: The operation lacked the necessary privileges to complete for path a: not found",
        "a text that nobody knows",
    ],
)
def test_an_error_of_a_store_tells_of_nothing_that_is_gone(said: str) -> None:
    for fault in (DeltaError(said), OSError(said)):
        with pytest.raises(RunFailed, match="cannot be read now"):
            tables.check_gone("s3://lake/t", fault)
    if said != "a text that nobody knows":
        assert isinstance(tables._unreadable("s3://lake/t", DeltaError(said)), RunFailed)


def test_a_store_that_cannot_be_reached_is_a_failure_that_a_retry_may_mend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without credentials nothing is asked of the network. The client's own error has lines and colours."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(RunFailed, match=r"table readings: the table cannot be read now: .*; fix the disk") as fault:
        tables.open_table("s3a://bucket/lake/readings")
    assert str(fault.value).isprintable()


def test_a_path_that_the_system_cannot_look_at_is_a_failure_that_a_retry_may_mend(place: Path) -> None:
    """It answers for a link to a name that is too long as for a mount that is gone: with an error."""
    gone = place / "readings"
    gone.symlink_to("x" * 300)
    for table in (gone, gone / "of" / "today"):
        with pytest.raises(RunFailed, match=f"table {table.name}: the table cannot be read now: .*too long.*; fix"):
            tables.open_table(str(table))


def test_an_error_of_delta_rs_itself_is_none_of_a_store() -> None:
    said = "Generic DeltaTable error: Schema error: no field named x"
    assert not of_store(said) and of_store(said.replace("DeltaTable", "S3"))


def test_a_version_that_is_gone_or_damaged_is_no_reason_to_retry(table: str) -> None:
    """By delta-rs's own words, for each way in which a log can lack a version."""
    write_deltalake(table, pa.table({"n": [3]}), mode="append")
    _gone_at(table, 9)
    entry(table, 2).write_text("{")
    _gone_at(table, 3)
    entry(table, 2).unlink()
    _gone_at(table, 3)
    _gone_at(table, 2)
    entry(table, 0).unlink()
    entry(table, 0).with_suffix(".crc").unlink()
    _gone_at(table, 1)
    _gone_at(table, 0)


def test_a_version_before_or_in_a_damaged_checkpoint_is_gone(table: str) -> None:
    DeltaTable(table).create_checkpoint()
    entry(table, 1).unlink()
    _gone_at(table, 1)
    [checkpoint] = (Path(table) / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"x")
    _gone_at(table, 2)
    checkpoint.unlink()
    _gone_at(table, 2)


def _gone_at(address: str, version: int) -> None:
    with pytest.raises((OSError, DeltaError)) as fault:
        DeltaTable(address, version=version)
    tables.check_gone(address, fault.value)


@pytest.mark.parametrize(
    "said",
    [
        "403 Forbidden", "AccessDenied", "(Service: S3, Status Code: 403, Request ID: x)", "<Code>InternalError</Code>",
        "RequestTimeTooSkewed", "TokenRefreshRequired", "500 Internal Server Error",
    ],
)  # fmt: skip
def test_what_a_store_says_of_itself_is_no_damage(said: str) -> None:
    assert passing(said) and not damaged(f"FileNotFoundException: {said}")
    assert isinstance(tables._unreadable("s3://lake/t", DeltaError(f"Generic S3 error: {said}")), RunFailed)


def entry(address: str, version: int) -> Path:
    return Path(address) / "_delta_log" / f"{version:020}.json"


@pytest.mark.parametrize("how", ["emptied", "truncated"])
def test_a_torn_entry_that_nothing_relies_on_is_put_aside(table: str, how: str) -> None:
    damage(entry(table, 2), how)
    assert rename_torn_entries(table, above=2) == []
    assert rename_torn_entries(table, above=1) == [entry(table, 2).name]
    assert DeltaTable(table).version() == 1
    assert rename_torn_entries(table, above=0) == [], "the entry before is whole"


@pytest.mark.parametrize("method", ["rename", "unlink", "read_bytes"])
def test_two_starts_repair_a_log_at_once(table: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a power loss, when two schedulers start: one takes away what the other has just listed."""
    damage(entry(table, 2), "truncated")
    stale = [entry(table, version).with_suffix(".crc") for version in (2, 3)]
    for one in (*stale, entry(table, 3).with_name(f".{entry(table, 3).name}.crc")):
        one.write_text("{}")
    do, head = getattr(Path, method), SimpleNamespace(generation=1, token="t", kept_output=False, open=None)
    monkeypatch.setattr(preflight, "places_of", lambda _: {"sink/t": table})
    head.commits = {"sink/t": 1}

    def after_another(*given: Any, **how: Any) -> Any:
        monkeypatch.setattr(Path, method, do)
        preflight.repair_sinks("ledger", cast("Head", head))
        return do(*given, **how)

    monkeypatch.setattr(Path, method, after_another)
    preflight.repair_sinks("ledger", cast("Head", head))
    assert DeltaTable(table).version() == 1 and not any(one.exists() for one in stale)


def newest_file(address: str) -> Path:
    [file] = {*DeltaTable(address).file_uris()} - {*DeltaTable(address, version=1).file_uris()}
    return Path(address) / Path(file).name


def test_an_entry_whose_file_holds_other_rows_is_not_torn(table: str) -> None:
    pq.write_table(pa.table({"n": [*range(1000)]}), newest_file(table))
    assert rename_torn_entries(table, above=1) == []
    damage(newest_file(table), "truncated")
    assert rename_torn_entries(table, above=1) == [entry(table, 2).name]


@pytest.mark.parametrize("short", [0, 1])
def test_a_file_of_which_a_power_loss_left_zeros_is_torn(table: str, short: int) -> None:
    """Of its length, too: the file system may have kept that, and not what was in it."""
    file = newest_file(table)
    file.write_bytes(bytes(file.stat().st_size - short))
    assert rename_torn_entries(table, above=1) == [entry(table, 2).name]


def test_an_entry_whose_file_is_gone_is_torn_if_it_is_ours(table: str) -> None:
    newest_file(table).unlink()
    assert rename_torn_entries(table, above=1, app="somebody else's") == []
    assert rename_torn_entries(table, above=1) == [entry(table, 2).name]


@pytest.mark.parametrize("word", ["path", "size", "appId"])
def test_an_entry_that_lacks_what_it_must_have_is_torn(tmp_path: Path, word: str) -> None:
    address = str(tmp_path / "ledger")
    Ledger.open(address, "one").begin(1, "token", first())
    newest = entry(address, 1)
    newest.write_bytes(newest.read_bytes().replace(f'"{word}"'.encode(), f'"X{word[1:]}"'.encode()))
    with pytest.raises(LedgerBroken, match="was written only in part"):
        LedgerReader.load(address)
    with pytest.raises(TableBroken, match=rf"log entry 1 .*expected \w+\.{word}, found None"):
        tablelog.transactions(address, 1)
    assert rename_torn_entries(address, above=0) == [newest.name]


SEPARATORS = "a\u2028b\u2029c\u0085d"


def test_characters_that_some_take_for_ends_of_lines_are_none_in_a_log(tmp_path: Path) -> None:
    address = str(tmp_path / "table")
    write_deltalake(address, pa.table({"n": [1]}))
    write_deltalake(address, pa.table({"n": [2], "k": [SEPARATORS]}), mode="append", schema_mode="merge")
    assert SEPARATORS in entry(address, 1).read_text(), "delta-rs writes them as they are, into statistics"
    assert rename_torn_entries(address, above=0) == []
    assert len(datafiles.added_paths(address, 1)) == 1
    damage(entry(address, 1), "truncated")
    assert rename_torn_entries(address, above=0) == [entry(address, 1).name]


def without_statistics(address: str, version: int) -> None:
    actions = [json.loads(line) for line in entry(address, version).read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    entry(address, version).write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize(
    ("written", "newest"),
    [
        ("2001-01-01T00:00:00.000Z", 978_307_200_000_999),
        ("0000-12-31T23:00:00.000Z", -62_135_600_400_000_000 + 60_000_998),  # a year that Python does not know
    ],
)
def test_how_late_a_files_rows_may_be(tmp_path: Path, written: str, newest: int) -> None:
    address = str(tmp_path / "timed")
    write_deltalake(address, pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))}))
    log = entry(address, 0)
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for added in (action["add"] for action in actions if "add" in action):
        added["stats"] = json.dumps({"numRecords": 1, "minValues": {"at": written}, "maxValues": {"at": written}})
    log.write_text("\n".join(map(json.dumps, actions)))
    assert [file.newest for file in datafiles.files_of(DeltaTable(address), "at")] == [newest]


def test_rows_that_no_statistics_count_are_not_known(table: str) -> None:
    source = DeltaSource("s", Stream(kind="delta", address=table))
    size = datafiles.size_of(DeltaTable(table))
    assert source.bytes_a_row() == size / 2
    without_statistics(table, 2)
    assert sorted(str(file.rows) for file in datafiles.files_of(DeltaTable(table))) == ["1", "None"]
    assert source.bytes_a_row() is None
    without_statistics(table, 1)
    assert [file.rows for file in datafiles.files_of(DeltaTable(table))] == [None, None]


def test_a_table_is_made_in_a_store_of_objects_without_a_local_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tables, "open_table", lambda address: None)
    monkeypatch.setattr(tables.DeltaTable, "create", lambda address, *_, **__: made.append(address))
    tables.create("s3://bucket/lake/out", COLUMNS, {})
    assert made == ["s3://bucket/lake/out"] and not list(tmp_path.iterdir())


def test_a_full_disk_leaves_no_half_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, write = str(tmp_path / "table"), Path.write_bytes

    def takes_nothing(file: Path, data: bytes) -> int:
        if "json.crc" in file.name:
            write(file, b"")
            raise OSError(errno.ENOSPC, "No space left on device", str(file))
        return write(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", takes_nothing)
        with pytest.raises(OSError, match="No space"):
            tables.create(address, COLUMNS, {})
    tables.create(address, COLUMNS, {})
    assert log_faults(address) == []


def test_a_table_is_made_with_checksums_that_show_a_changed_entry(table: str) -> None:
    assert log_faults(table) == []
    damage(entry(table, 0), "flipped")
    [fault] = log_faults(table)
    assert entry(table, 0).name in fault and "does not match its checksum" in fault


def test_state_rewritten_for_an_epoch_that_the_ledger_lost(tmp_path: Path) -> None:
    head = Ledger.open(str(tmp_path / "ledger"), "one").begin(1, "token", first())
    known = {"sink/lake/out": None}, {"sink/lake/out": "id"}
    check_tables(head, *known, {"state/s": 0})
    with pytest.raises(LedgerBroken, match=r"state s: the table was rewritten after epoch 1, .* at epoch 0"):
        check_tables(head, *known, {"state/s": 1})


def test_what_a_rewrite_says(table: str) -> None:
    assert datafiles.holding_from(4, 4) == {"holds_from": 4, "after": 4}
    assert datafiles.holding_from(4) == {"holds_from": 4}
    assert datafiles.rewritten_after(table, 0, DeltaTable(table).version()) == 0


@pytest.mark.parametrize(("version", "index", "lost"), [(3, -1, False), (2, 0, False), (4, -1, True), (3, 0, True)])
def test_a_source_that_lost_what_was_read_is_refused(table: str, version: int, index: int, lost: bool) -> None:
    source = DeltaSource("s", Stream(kind="delta", address=table))
    line = DeltaOffset(tables.table_id(DeltaTable(table)), version, index, False).line()
    if not lost:
        source.check_identity(line, None)
        return
    with pytest.raises(HistoryGone, match="it lost commits"):
        source.check_identity(line, None)


@pytest.mark.parametrize(("version", "index"), [(3, -1), (2, 0), (2, -1), (0, -1)])
def test_a_source_that_was_put_back_and_written_to_since_is_refused(table: str, version: int, index: int) -> None:
    """Known by the newest log entry that was read; one that was cleaned up meanwhile tells nothing."""
    source = DeltaSource("s", Stream(kind="delta", address=table))
    line = DeltaOffset(tables.table_id(DeltaTable(table)), version, index, version == 0).line()
    log_sum = source.log_sum(line)
    source.check_identity(line, log_sum)
    assert not source.is_another(line, log_sum)
    newest_read = entry(table, DeltaOffset.parse(line).newest_read)
    assert log_sum == sha256(newest_read.read_bytes()).hexdigest()
    with newest_read.open("a") as file:
        file.write("\n")
    assert source.is_another(line, log_sum) and not source.is_another(line, None)
    with pytest.raises(
        HistoryGone, match=rf"version {DeltaOffset.parse(line).newest_read} of .* is not the commit that was read"
    ):
        source.check_identity(line, log_sum)
    DeltaTable(table).create_checkpoint()
    for older in range(DeltaOffset.parse(line).newest_read + 1):
        entry(table, older).unlink()
    assert source.log_sum(line) is None
    source.check_identity(line, log_sum)
    newest_read.mkdir()
    with pytest.raises(RunFailed):
        source.check_identity(line, log_sum)


@pytest.mark.parametrize(("gone", "kept"), [(range(5), 5), (range(2), 5), ((2,), 5), ((0,), 5)])
def test_a_first_snapshot_that_the_log_does_not_reach_any_more(tmp_path: Path, gone: Iterable[int], kept: int) -> None:
    """Half read when the source cleaned its log: no retry brings it back. The store's own passing faults are none."""
    address = str(tmp_path / "t")
    for n in range(kept + 1):
        write_deltalake(address, pa.table({"n": [n]}), mode="append")
    DeltaTable(address).create_checkpoint()
    for version in gone:
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    source = DeltaSource("s", Stream(kind="delta", address=address))
    line = DeltaOffset(tables.table_id(DeltaTable(address)), 2, 0, True).line()
    for asked in (source.news, source.waiting):
        with pytest.raises(
            HistoryGone, match=r"stream s: expected version 2 of .* rows are still to be read.*floodmark reset"
        ):
            asked(line)


def test_a_store_that_is_away_has_forgotten_nothing(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise DeltaError("Generic LocalFileSystem error: Stale file handle (os error 116)")

    monkeypatch.setattr(DeltaTable, "load_as_version", away)
    with pytest.raises(RunFailed, match="fix the disk or the store, then retry"):
        DeltaSource("s", Stream(kind="delta", address=table)).waiting(DeltaOffset("", 0, -1, True).line())


def test_a_ledger_row_is_synced_before_anything_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file, then its log entry, then what names them; nothing where it is not asked for."""
    synced: list[str] = []
    monkeypatch.setattr(syncing, "_sync", lambda place: synced.append(place.name))
    ledger = Ledger.open(str(tmp_path / "ledger"), "one")
    assert synced == []
    monkeypatch.setenv("FLOODMARK_SYNC", "1")
    ledger.begin(1, "token", first())
    visible = [name for name in synced if not name.startswith(".")]
    assert visible[0].endswith(".parquet") and visible[1:] == ["ledger", f"{1:020}.json", "_delta_log"]


def test_a_row_that_a_full_disk_did_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody came between, so it is the disk: a retry may help. The ledger is as it was."""
    from floodmark.ledger import ledger as module

    ledger = Ledger.open(str(tmp_path / "ledger"), "one")
    ledger.begin(1, "token", first())

    def full(*_: object, **__: object) -> None:
        raise OSError("Generic LocalFileSystem error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_deltalake", full)
        with pytest.raises(RunFailed, match="did not take intent of epoch 1: the disk is full; make room, then retry"):
            ledger.intend(intent(1))
    again = Ledger.open(ledger.address, "two")
    again.intend(intent(1))
    again.commit(commit(intent(1)))
    found = LedgerReader.load(ledger.address)
    assert found is not None and found.head is not None and found.head.epoch == 1
