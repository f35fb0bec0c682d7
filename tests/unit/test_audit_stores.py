"""A store that does not answer says nothing about its files: such an audit is unknown, and damage stays broken."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.audited import Made

from floodmark.audit import logreader
from floodmark.audit.certificate import audit
from floodmark.audit.content.content import rows_of, until_unreadable
from floodmark.audit.evidence import Finding, TableLog
from floodmark.audit.ledger.named import Named
from floodmark.audit.stores import unanswered

MARK = "\n   \x1b[31m↳\x1b[0m "
REFUSED = ("Kernel error -> Generic S3 error", "Error performing GET http://127.0.0.1:9/lake/t in 2.5 s, after 10 "
           "retries, max_retries", "180s  - HTTP error", "Connection refused (os error 111)")  # fmt: skip
FORBIDDEN = ("Kernel error -> The operation lacked the necessary privileges to complete for path t/_delta_log/"
             "_last_checkpoint", "403 Forbidden", "<Error><Code>AccessDenied</Code></Error>")  # fmt: skip
IN_A_QUERY = (
    "External error: Parquet error: Failed to fetch metadata for file t/1.parquet: Object Store error: Generic "
    "LocalFileSystem error: Unable to open file /t/1.parquet: Permission denied (os error 13)",
)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (REFUSED, "(Kernel error -> Generic S3 error: Connection refused (os error 111))"),
        (FORBIDDEN, "AccessDenied"),
        (IN_A_QUERY, "Failed to fetch metadata for file t/1.parquet"),
        (("Generic MicrosoftAzure error", "503 Service Unavailable"), "503 Service Unavailable"),
        (("[Errno 116] Stale file handle",), "Stale file handle"),
    ],
)
def test_what_a_store_says_in_place_of_a_file_is_told_in_one_line(lines: tuple[str, ...], told: str) -> None:
    found = unanswered(OSError(MARK.join(lines) + "\n"))
    assert found is not None and told in found and "audit again" in found
    assert "\n" not in found and "\x1b" not in found and "↳" not in found


@pytest.mark.parametrize(
    "text",
    [
        "Couldn't deserialize thrift: don't know what type: \x0f\nDeserializing page header failed.\n",
        "Kernel error: Json error: Encountered unexpected 'g' whilst parsing value",
        "Kernel error: No table metadata or protocol found in delta log.",
        f"Generic S3 error{MARK}Requested range was invalid",
        "Generic DeltaTable error: Data does not match the schema",
    ],
)
def test_what_is_said_of_a_file_s_content_is_no_silence_of_its_store(text: str) -> None:
    assert unanswered(OSError(text)) is None


@contextmanager
def no_handle_left() -> Iterator[None]:
    """This process may open no more files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """It was audited once, so that all modules are there."""
    found = Made(tmp_path, 2)
    assert found.verdicts(deep=True) == []
    return found


def test_good_data_are_unknown_where_no_file_can_be_opened(made: Made) -> None:
    with no_handle_left():
        found = audit("r", made.home.parent, deep=True)
    assert found is not None and found.verdict == "unknown"
    (what,) = [one.what for one in found.findings]
    assert f"the ledger at {made.home}/ledger cannot be read" in what and "Too many open files" in what


def test_a_table_that_cannot_be_opened_is_unknown(made: Made) -> None:
    with no_handle_left(), pytest.raises(logreader.Unreadable, match="Too many open files") as caught:
        logreader.read_table(str(made.sink))
    assert caught.value.verdict == "unknown"


def test_a_file_that_cannot_be_opened_is_unknown_and_one_that_is_damaged_is_broken(made: Made) -> None:
    log, store, file = logreader.read_table(str(made.sink)), logreader.store_of(str(made.sink)), made.sink / "1.parquet"
    named = Named("sink/x", 1, 1, "app", "intent", {"commit": 1})

    def read() -> Iterator[Finding]:
        rows_of(store, file.name, log)
        return iter(())

    def found() -> list[str]:
        return [one.verdict for one in until_unreadable(named, (one for _ in "1" for one in read()))]

    assert found() == []
    with no_handle_left():
        assert found() == ["unknown"]
    size = pq.ParquetFile(file).metadata.row_group(0).column(0).total_compressed_size
    with file.open("r+b") as opened:
        opened.seek(4)
        opened.write(b"\xff" * min(size, 40))
    assert found() == ["broken"]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("since", [None, 0])
def test_a_sink_that_cannot_be_opened_is_unknown_to_a_verdict_on_the_generation_after_a_reset_too(
    made: Made, monkeypatch: pytest.MonkeyPatch, deep: bool, since: int | None
) -> None:
    read = logreader.read_table

    def without_a_handle(address: str) -> TableLog:
        if address != str(made.sink):
            return read(address)
        with no_handle_left():
            return read(address)

    made.reset(2)
    monkeypatch.setattr(logreader, "read_table", without_a_handle)
    found = audit("r", made.home.parent, deep, since=since)
    assert found is not None and found.verdict == "unknown"
    (what,) = [one.what for one in found.findings]
    assert f"the table at {made.sink} cannot be read" in what
    assert found.decided_since is None


def test_a_ledger_that_is_gone_for_a_moment_after_the_tables_were_read_is_unknown(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = logreader.counted_in

    def without_a_handle(address: str) -> int:
        with no_handle_left():
            return counted(address)

    monkeypatch.setattr(logreader, "counted_in", without_a_handle)
    ((verdict, what),) = made.verdicts()
    assert verdict == "unknown" and "ledger cannot be read" in what
