"""`floodmark maintain` on real tables, without Spark."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableOptimizer
from support.aged import age, entries, files
from support.byhand import begun, commit, intent
from support.damaging import damage
from support.flow import STATELESS, Flow, rows_of
from support.lives import an_epoch, by_hand, lived, wrote
from test_doctor import locked
from test_ledger import backfill
from typer.testing import CliRunner

from floodmark.audit.certificate import audit
from floodmark.cli.app import app
from floodmark.connectors.abandoning import check_before
from floodmark.connectors.backlog import news
from floodmark.connectors.backlog.news import look
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.preflight import check_without_jvm, restore_logs
from floodmark.core.lifecycle.cleanup import CHECKPOINT_AFTER
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import FORMAT, Commit, Counts, Pinned, Seal
from floodmark.core.protocol.recovery import app_id
from floodmark.core.rules.model import CleanUp
from floodmark.core.rules.rule import Rule
from floodmark.errors import RunFailed
from floodmark.ledger import maintenance
from floodmark.ledger.delta import damage as damages
from floodmark.ledger.delta import datafiles, tables
from floodmark.ledger.delta.damage import HELD, HINT, file_damage
from floodmark.ledger.holder import owner_file
from floodmark.ledger.ledger import Ledger
from floodmark.ledger.locking import held
from floodmark.ledger.maintenance import FILES, _beyond

EPOCHS = 4


@pytest.fixture
def flow(place: Path) -> Flow:
    """A rule with some epochs, all of it long ago; its logs are too short for a checkpoint."""
    found = Flow(place)
    ledger = lived(found)
    for _ in range(EPOCHS - 1):
        an_epoch(found, ledger)
    aged(found)
    return found


def aged(flow: Flow, days: float = 60) -> None:
    for address in (flow.sink(0), flow.sink(1), flow.place.late, flow.place.dead, flow.place.state(1, "events")):
        age(address, days)


def call(flow: Flow, *words: str, code: int = 0) -> str:
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home), "COLUMNS": "200"}
    found = CliRunner().invoke(app, [*words], env=places)
    assert found.exit_code == code, found.output
    return found.stdout if "--json" in words else found.output


def maintain(flow: Flow, *words: str) -> Any:
    return json.loads(call(flow, "maintain", "counted", "--yes", "--json", *words))


def findings(flow: Flow, deep: bool = False) -> list[tuple[str, str]]:
    found = audit("counted", flow.home, deep)
    assert found is not None
    return [(one.verdict, one.what) for one in found.findings]


def test_small_files_are_joined_and_no_row_changes(flow: Flow) -> None:
    before, known = rows_of(flow.sink()), findings(flow)
    told = maintain(flow)
    assert told["tables"][f"sink/{flow.sink()}"]["joined"] == EPOCHS
    assert len(datafiles.files_of(DeltaTable(flow.sink()))) == 1
    assert sorted(rows_of(flow.sink()), key=str) == sorted(before, key=str)
    assert findings(flow) == known, "a commit that changes no row is no finding"
    assert DeltaTable(flow.sink()).transaction_version(sink_app(flow)) == EPOCHS << 20


def test_what_it_writes_has_checksums_as_what_spark_writes(flow: Flow) -> None:
    """By them a run sees a log entry, and Hadoop a file, in which something was changed."""
    ledger = Ledger.open(flow.place.ledger, "run")
    for _ in range(CHECKPOINT_AFTER):
        an_epoch(flow, ledger)
    data, versions, log = files(flow.sink()), entries(flow.sink()), Path(flow.sink()) / "_delta_log"
    maintain(flow)
    new = [Path(flow.sink()) / name for name in files(flow.sink()) - data]
    new += [log / f"{version:020}.json" for version in entries(flow.sink())[len(versions) :]]
    new += [log / HINT, *log.glob("*.checkpoint.parquet")]
    assert len(new) == 4
    for file in new:
        assert file.with_name(f".{file.name}.crc").exists()
        assert file_damage(file) is None
        damage(file, "flipped")
        assert file_damage(file)


def one_bit(file: Path, before: bytes, after: bytes) -> None:
    """Another value in a file that can still be read. Spark has left checksums beside it."""
    tables.write_sums(file)
    data = file.read_bytes()
    assert before in data and sum((a ^ b).bit_count() for a, b in zip(before, after, strict=True)) == 1
    file.write_bytes(data.replace(before, after, 1))


def a_joined_file(flow: Flow) -> None:
    file = next(Path(flow.sink()).glob("*.parquet"))
    one_bit(file, b"\x01\0\0\0a", b"\x01\0\0\0c")  # a text's length, and the text


def an_entrys_statistics(flow: Flow) -> None:
    one_bit(Path(flow.sink()) / "_delta_log" / f"{2:020}.json", b'\\"numRecords\\":1', b'\\"numRecords\\":3')


def a_file_cut_off(flow: Flow) -> None:
    damage(next(Path(flow.sink()).glob("*.parquet")), "truncated")


@pytest.mark.parametrize("harm", [a_joined_file, an_entrys_statistics, a_file_cut_off])
def test_what_is_harmed_is_neither_joined_nor_repeated_by_a_checkpoint(flow: Flow, harm: Any) -> None:
    """With checksums of its own it would be the truth from then on. No other table is touched before either."""
    ledger = Ledger.open(flow.place.ledger, "run")
    for _ in range(CHECKPOINT_AFTER):
        an_epoch(flow, ledger)
    harm(flow)
    before = files(flow.sink()), entries(flow.sink()), files(flow.sink(1))
    said = call(flow, "maintain", "counted", "--yes", code=3)
    assert "sink counted_out0: " in said and "restore missing or corrupt files from a copy" in said
    assert (files(flow.sink()), entries(flow.sink()), files(flow.sink(1))) == before
    assert not list((Path(flow.sink()) / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_table_that_was_put_back_from_an_older_copy_loses_no_file(flow: Flow) -> None:
    """What its log does not name any more may be what a newer copy of the log names."""
    newest = Path(flow.sink()) / "_delta_log" / f"{EPOCHS:020}.json"
    newest.rename(flow.root / "kept.json")
    before = files(flow.sink())
    assert "the ledger wrote version" in call(flow, "maintain", "counted", "--yes", code=3)
    assert files(flow.sink()) == before


def sink_app(flow: Flow) -> str:
    ledger = flow.ledger()
    assert ledger.head is not None
    return app_id(ledger.id, 1, ledger.head.token, "sink")


def test_what_was_replaced_stays_for_its_time_and_then_goes(flow: Flow) -> None:
    maintain(flow)
    assert len(files(flow.sink())) == EPOCHS + 1, "readers may still be at the version before"
    age(flow.sink(), 6.9)
    assert maintain(flow)["tables"][f"sink/{flow.sink()}"]["removed"] == 0
    age(flow.sink(), 0.2)
    assert len(files(flow.sink())) == EPOCHS + 1
    age(flow.sink(), 8)
    assert maintain(flow)["tables"][f"sink/{flow.sink()}"]["removed"] == EPOCHS
    assert len(files(flow.sink())) == 1 and len(rows_of(flow.sink())) == EPOCHS


def test_a_log_is_cut_at_a_checkpoint_and_the_audit_says_from_where_it_knows(flow: Flow) -> None:
    ledger = Ledger.open(flow.place.ledger, "more")
    for _ in range(CHECKPOINT_AFTER):
        an_epoch(flow, ledger)
    maintain(flow)
    known, newest = findings(flow), DeltaTable(flow.sink()).version()
    assert entries(flow.sink()) == list(range(newest + 1)), "some of it is young"
    aged(flow)
    assert maintain(flow)["tables"][f"sink/{flow.sink()}"]["log_from"] == newest
    assert entries(flow.sink()) == [newest]
    told = [what for verdict, what in findings(flow) if (verdict, what) not in known]
    assert len(told) == 2 and all(f"the log begins at version {newest}" in what for what in told)
    epochs = EPOCHS + CHECKPOINT_AFTER
    assert DeltaTable(flow.sink()).transaction_version(sink_app(flow)) == epochs << 20, "versions outlive their entries"
    an_epoch(flow, Ledger.open(flow.place.ledger, "after"))
    assert len(rows_of(flow.sink())) == epochs + 1


def test_files_that_left_lately_are_known_without_a_checkpoint_of_them(tmp_path: Path) -> None:
    address = str(tmp_path / "t")
    write_deltalake(address, pa.table({"n": [1]}))
    old = DeltaTable(address).file_uris()[0].rsplit("/", 1)[1]
    write_deltalake(address, pa.table({"n": [2]}), mode="overwrite")
    entry = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    left = entry.stat().st_mtime
    assert maintenance._left_since(address, left - 1) == {old}
    assert maintenance._left_since(address, left + 1) == set()


def test_the_log_is_not_read_for_files_that_left_where_none_is_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, read = str(tmp_path / "t"), list[str]()
    write_deltalake(address, pa.table({"n": [1]}))
    monkeypatch.setattr(maintenance, "_left_since", lambda address, moment: read.append(address) or set())
    upkeep = maintenance.Maintenance(CleanUp(keep_us=30 * 86_400_000_000), {}, {})
    assert [*upkeep._removable(DeltaTable(address), address)] == [] and not read
    (tmp_path / "t" / "part-left.parquet").write_bytes(b"")
    os.utime(tmp_path / "t" / "part-left.parquet", (0, 0))
    assert len([*upkeep._removable(DeltaTable(address), address)]) == 1 and read


def test_a_log_that_its_owner_keeps_is_not_cut(flow: Flow) -> None:
    DeltaTable(flow.sink()).alter.set_table_properties({maintenance.CLEANUP: "False"})
    DeltaTable(flow.sink()).create_checkpoint()
    aged(flow)
    assert maintain(flow)["tables"][f"sink/{flow.sink()}"]["entries_cut"] == 0
    assert entries(flow.sink())[0] == 0


def test_a_dry_run_says_what_would_be_done_and_does_nothing(flow: Flow) -> None:
    maintain(flow)
    age(flow.sink(), 60)
    before = (files(flow.sink()), flow.ledger().head)
    said = call(flow, "maintain", "counted", "--dry-run")
    assert f"{EPOCHS} files to remove" in said and "late: nothing to do" in said
    assert (files(flow.sink()), flow.ledger().head) == before
    assert "--yes" in call(flow, "maintain", "counted", code=2)
    assert (files(flow.sink()), flow.ledger().head) == before


def test_what_is_printed_is_what_was_done_and_what_will_be(flow: Flow) -> None:
    """A checkpoint that will be made repeats what is cut."""
    ledger = Ledger.open(flow.place.ledger, "by hand")
    for _ in range(CHECKPOINT_AFTER):
        an_epoch(flow, ledger)
    aged(flow)
    will, done = maintain(flow, "--dry-run"), maintain(flow)
    assert will["tables"] == done["tables"]
    told = done["tables"][f"sink/{flow.sink()}"]
    newest = EPOCHS + CHECKPOINT_AFTER + 1
    assert (told["entries_cut"], told["log_from"], entries(flow.sink())) == (newest, newest, [newest])


def test_the_ledger_says_what_was_done_and_goes_on(flow: Flow) -> None:
    maintain(flow, "--run-id", "me")
    assert len(DeltaTable(flow.place.ledger).file_uris()) <= 2
    row = flow.ledger().rows[-1]
    body = json.loads(row.body)
    assert (row.kind, row.run, body["what"], body["format"]) == ("life", "me", "maintained", FORMAT)
    assert body["tended"][f"sink/{flow.sink()}"]["compacted"] == EPOCHS
    assert "maintained" in call(flow, "epochs", "counted")
    an_epoch(flow, Ledger.open(flow.place.ledger, "after"))
    head = flow.ledger().head
    assert head is not None and (head.epoch, head.maintained) == (EPOCHS + 1, row.at)


def test_it_is_done_once_in_the_time_that_the_rule_says(flow: Flow) -> None:
    flow.settings = {"cleanup": {"every": "1 hour"}}
    flow.write_rule()
    assert maintain(flow, "--due")["done"] is True
    assert maintain(flow, "--due")["done"] is False
    assert "not due, last maintained 20" in call(flow, "maintain", "counted", "--due", "--yes")
    assert maintain(flow)["done"] is True


def test_what_is_not_due_reads_no_other_rules_ledger(flow: Flow) -> None:
    reader = reading(flow, EPOCHS - 1)
    maintain(flow)
    log = Path(reader.place.ledger, "_delta_log")
    log.rename(log.with_name("kept"))
    log.symlink_to("x" * 300)  # as on a disk that fails
    assert maintain(flow, "--due")["done"] is False
    assert "cannot be read now" in call(flow, "maintain", "counted", "--yes", code=1)


def test_what_a_killed_run_left_goes_and_what_a_run_is_writing_stays(flow: Flow) -> None:
    orphan, young = (Path(flow.sink()) / name for name in ("part-00000-old.parquet", "part-00000-young.parquet"))
    theirs = Path(flow.sink()) / "notes.txt"
    for file in (orphan, theirs):
        file.write_bytes(b"x")
    age(flow.sink(), 60)
    young.write_bytes(b"x")
    maintain(flow)
    assert not orphan.exists() and young.exists() and theirs.exists()


# ------------------------------------------------------------------------------------------ what is never touched


def test_parquet_files_that_no_writer_of_delta_names_so_stay(flow: Flow) -> None:
    places = ("export.parquet", "backup/part-00000-a.parquet", "other/export.parquet")
    theirs = [Path(flow.sink()) / name for name in places]
    ours = [Path(flow.sink()) / name for name in ("k=a/part-00000-a.parquet", "x7/part-00000-a.parquet")]
    for file in (*theirs, *ours):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x")
    age(flow.sink(), 60)
    told = maintain(flow, "--dry-run")
    assert told["tables"][f"sink/{flow.sink()}"]["removed"] == len(ours)
    maintain(flow)
    assert all(file.exists() for file in theirs) and not any(file.exists() for file in ours)


def test_what_an_open_epoch_has_written_stays_file_by_file(flow: Flow) -> None:
    ledger = Ledger.open(flow.place.ledger, "open")
    ledger.intend(intent(flow, EPOCHS + 2, None, 0, Counts(read=1, folded=1)))
    wrote(flow.sink(0), ledger, EPOCHS + 1)
    aged(flow)
    before = files(flow.sink(0))
    told = maintain(flow)
    assert f"epoch {EPOCHS + 1} is open" in told["left"][f"sink/{flow.sink(0)}"]
    assert files(flow.sink(0)) == before and len(datafiles.files_of(DeltaTable(flow.sink(0)))) == EPOCHS + 1
    assert len(datafiles.files_of(DeltaTable(flow.sink(1)))) == 1, "the others are maintained"
    head = flow.ledger().head
    assert head is not None and head.open is not None and head.attempt == 1, "the epoch is as open as it was"


def test_an_unfinished_reset_is_finished_first(flow: Flow) -> None:
    Ledger.open(flow.place.ledger, "x").seal(
        Seal(why="reset", successor=2, token="t", keep_output=False, discarded=None)
    )
    assert "a reset has not finished" in call(flow, "maintain", "counted", "--yes", code=2)


def test_a_reset_that_somebody_is_at_is_waited_for(flow: Flow) -> None:
    Ledger.open(flow.place.ledger, "x").seal(
        Seal(why="reset", successor=2, token="t", keep_output=False, discarded=None)
    )
    flow.place.lock.touch()
    with locked(flow.place.lock):
        assert "another run holds" in call(flow, "maintain", "counted", "--yes", code=1)


def adopted(flow: Flow) -> str:
    DeltaTable(flow.sink()).alter.set_table_properties({tables.ADOPTED: "0"}, raise_if_not_exists=False)
    return "was there before the rule"


def others_wrote(flow: Flow) -> str:
    by_hand(flow.sink())
    return "others have written to it"


def others_own(flow: Flow) -> str:
    DeltaTable(flow.sink()).alter.set_table_properties({tables.OWNER: "x"}, raise_if_not_exists=False)
    return "belongs to another ledger (id x)"


def other_inside(flow: Flow) -> str:
    by_hand(f"{flow.sink()}/inner")
    return "it contains another table"


def gone(flow: Flow) -> str:
    Path(flow.sink()).rename(f"{flow.sink()}.away")
    return "no table is there"


def another(flow: Flow) -> str:
    gone(flow)
    by_hand(flow.sink())
    return "another table is there"


@pytest.mark.parametrize("plant", [adopted, others_wrote, others_own, other_inside, gone, another])
def test_a_table_that_is_not_the_rules_own_is_left_as_it_is(flow: Flow, plant: Any) -> None:
    why = plant(flow)
    before = files(flow.sink())
    told = maintain(flow)
    assert why in told["left"][f"sink/{flow.sink()}"]
    assert files(flow.sink()) == before and f"sink/{flow.sink(1)}" in told["tables"]


def test_files_that_spark_alone_can_write_are_left_to_spark(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.ledger.maintenance._beyond", lambda table: "deletionVectors")
    before = files(flow.sink())
    told = maintain(flow)
    assert told["tables"][f"sink/{flow.sink()}"]["not_by_us"] == "deletionVectors"
    assert files(flow.sink()) == before


def test_files_whose_paths_delta_rs_spells_otherwise_are_not_joined(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.ledger.delta.joining.is_odd", lambda path: True)
    before, why = files(flow.sink()), "paths that delta-rs spells otherwise, such as "
    assert f"files are not joined, because they have {why}" in call(flow, "maintain", "counted", "--dry-run")
    assert maintain(flow)["tables"][f"sink/{flow.sink()}"]["not_by_us"].startswith(why)
    assert files(flow.sink()) == before


@pytest.mark.parametrize(
    ("kind", "value", "left"),
    [
        (pa.timestamp("us", "UTC"), datetime(2001, 7, 1, 10, tzinfo=UTC), "partitions by at, a timestamp"),
        (pa.decimal128(10, 2), Decimal("0.05"), "partitions by at, a decimal(10,2)"),
        (pa.timestamp("us"), datetime(2001, 7, 1, 10), ""),  # TIMESTAMP_NTZ
        (pa.date32(), date(2001, 7, 1), ""),
    ],
)
def test_partitions_of_which_it_would_make_others_are_left_to_spark(
    tmp_path: Path, kind: pa.DataType, value: Any, left: str
) -> None:
    write_deltalake(tmp_path, pa.table({"at": pa.array([value], kind), "n": [1]}), partition_by=["at"])
    assert _beyond(DeltaTable(tmp_path)) == left


def test_files_that_a_link_leads_to_are_not_the_tables(flow: Flow) -> None:
    other = f"{flow.root}/lake/other"
    by_hand(other)
    by_hand(other)
    age(other, 60)
    before = files(other)
    Path(flow.sink(), "linked").symlink_to(other)
    maintain(flow)
    age(other, 60)
    aged(flow)
    assert maintain(flow)["tables"][f"sink/{flow.sink()}"]["removed"] == EPOCHS
    assert files(other) == before and len(rows_of(flow.sink())) == EPOCHS


def test_joining_files_cuts_no_log_that_a_reader_needs(flow: Flow) -> None:
    reading(flow, EPOCHS - 1)
    DeltaTable(flow.sink()).create_checkpoint()
    aged(flow)
    before = {file: file.stat().st_mtime for file in Path(flow.sink(), "_delta_log").glob("*.json")}
    assert maintain(flow)["tables"][f"sink/{flow.sink()}"]["joined"] == EPOCHS
    assert {file: file.stat().st_mtime for file in before} == before


def test_log_entries_that_a_killed_upkeep_held_come_back_first(flow: Flow) -> None:
    reading(flow, 0)
    root = Path(flow.sink())
    DeltaTable(root).create_checkpoint()
    shutil.copytree(root / "_delta_log", root / HELD)
    (root / "_delta_log" / f"{1:020}.json").unlink()
    maintain(flow)
    assert entries(flow.sink())[:2] == [0, 1] and not (root / HELD).exists()


def test_a_run_puts_log_entries_back_too_unless_somebody_works_on_them(flow: Flow) -> None:
    reading(flow, 0)
    head, root = flow.ledger().head, Path(flow.sink())
    assert head is not None
    DeltaTable(root).create_checkpoint()
    shutil.copytree(root / "_delta_log", root / HELD)
    (root / "_delta_log" / f"{1:020}.json").unlink()
    with held(flow.place.lock, "upkeep"):
        restore_logs(flow.place, id_of(flow), head)
    assert 1 not in entries(flow.sink())
    restore_logs(flow.place, id_of(flow), head)
    assert entries(flow.sink())[:2] == [0, 1] and not (root / HELD).exists()


def id_of(flow: Flow) -> str:
    return flow.ledger().id


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("command", [False, True])
def test_a_log_that_the_upkeep_of_another_ledger_holds_stays_held(flow: Flow, command: bool, is_cut: bool) -> None:
    """Its upkeep may be at work now, and puts back what it holds."""
    head, root = flow.ledger().head, Path(flow.sink())
    assert head is not None
    DeltaTable(root).alter.set_table_properties({tables.OWNER: "somebody"}, raise_if_not_exists=False)
    shutil.copytree(root / "_delta_log", root / HELD)
    if is_cut:
        (root / "_delta_log" / f"{1:020}.json").unlink()
    if command:
        CliRunner().invoke(app, ["maintain", "counted", "--yes", "--home", str(flow.home)])
    else:
        restore_logs(flow.place, id_of(flow), head)
    assert (root / HELD).exists()


def test_a_log_that_was_cut_until_nobody_can_read_it_is_put_back(flow: Flow) -> None:
    head, root = flow.ledger().head, Path(flow.sink())
    assert head is not None
    shutil.copytree(root / "_delta_log", root / HELD)
    (root / "_delta_log" / f"{1:020}.json").unlink()
    restore_logs(flow.place, id_of(flow), head)
    assert entries(flow.sink())[:2] == [0, 1] and not (root / HELD).exists()


def refuses(*_: Any, **__: Any) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", "/lake/t")


def cut(flow: Flow) -> tuple[Head, Path]:
    """A sink's log after an upkeep was killed. The rule has read all of its source."""
    rule = reading(flow, 0).rule()
    head, root = flow.ledger().head, Path(flow.sink())
    assert head is not None and rule.streams
    DeltaTable(root).create_checkpoint()
    shutil.copytree(root / "_delta_log", root / HELD)
    (root / "_delta_log" / f"{1:020}.json").unlink()
    return head, root


@pytest.mark.parametrize("check", [check_without_jvm, check_before])
def test_a_copy_of_a_log_that_cannot_be_removed_stops_no_run_once_the_log_is_whole(
    flow: Flow, check: Callable[[Rule, Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, root = cut(flow)
    with monkeypatch.context() as failing:
        failing.setattr(damages.shutil, "rmtree", refuses)
        check(flow.rule(), flow.home)
        assert entries(flow.sink())[:2] == [0, 1] and (root / HELD).exists()
        said = f"{root / HELD} holds a copy of the table's log, left by an upkeep that was killed. The next run"
        assert [one.startswith(said) for one in look(flow.rule(), flow.home).notices] == [True]
        with mock.patch.object(news, "holder_pid", return_value=7):
            assert look(flow.rule(), flow.home).notices == ()
        with mock.patch.object(tables, "owner_of", return_value="another"):
            assert look(flow.rule(), flow.home).notices == (), "its upkeep may be at work"
        with pytest.raises(RunFailed, match=r"removed; the log is whole: Perm.* by hand, then retry"):
            damages.restore_log(root)
    check(flow.rule(), flow.home)
    assert not (root / HELD).exists() and look(flow.rule(), flow.home).notices == ()


@pytest.mark.parametrize(
    ("code", "way"),
    [(errno.EACCES, "Give the right to both"), (errno.ENOSPC, "Make room"), (errno.EROFS, "Mount it for writing")],
)
def test_a_log_that_cannot_be_put_back_stops_a_run_with_the_way_on(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, code: int, way: str
) -> None:
    head, root = cut(flow)
    monkeypatch.setattr(damages, "link", mock.Mock(side_effect=OSError(code, os.strerror(code), "/lake/t")))
    problem = f"{HELD} cannot be put back into the table's log: {os.strerror(code)}. {way}, then retry"
    with pytest.raises(RunFailed, match=re.escape(problem)):
        restore_logs(flow.place, id_of(flow), head)
    assert (root / HELD).exists()


def test_the_copy_of_a_log_that_is_gone_stays(flow: Flow) -> None:
    head, root = cut(flow)
    shutil.rmtree(root / "_delta_log")
    restore_logs(flow.place, id_of(flow), head)
    assert (root / HELD).exists()


def test_a_checkpoint_that_lacks_a_part_stands_for_nothing(flow: Flow) -> None:
    log, newest = Path(flow.sink(), "_delta_log"), DeltaTable(flow.sink()).version()
    DeltaTable(flow.sink(1)).create_checkpoint()
    whole = Path(flow.sink(1), "_delta_log", f"{newest:020}.checkpoint.parquet")
    (log / f"{newest:020}.checkpoint.{1:010}.{2:010}.parquet").write_bytes(whole.read_bytes())
    aged(flow)
    maintain(flow)
    assert entries(flow.sink())[0] == 0 and len(rows_of(flow.sink())) == EPOCHS


def test_a_log_is_not_cut_where_the_checkpoint_cannot_be_read(flow: Flow) -> None:
    an_epoch(flow, Ledger.open(flow.place.ledger, "by hand"))
    DeltaTable(flow.sink()).create_checkpoint()
    Path(flow.sink(), "_delta_log", f"{EPOCHS:020}.checkpoint.parquet").write_bytes(b"PAR1 torn PAR1")
    aged(flow)
    os.utime(Path(flow.sink(), "_delta_log", f"{EPOCHS:020}.json"))  # young: the newest checkpoint is beyond it
    assert "cannot be read; its log was not cut" in call(flow, "maintain", "counted", "--yes", code=3)
    assert entries(flow.sink())[0] == 0 and len(rows_of(flow.sink())) == EPOCHS + 1


def test_a_run_that_holds_the_rule_is_not_disturbed(flow: Flow) -> None:
    with held(flow.place.lock, "a run"):
        assert "process" in call(flow, "maintain", "counted", "--yes", code=1)


def reading(flow: Flow, version: int, snapshot: bool = False, spelt: str = "{}", **settings: Any) -> Flow:
    """Another rule that has read the first sink up to there."""
    reader = Flow(flow.root, "reader", sql=STATELESS, settings=settings, stream={"delta": spelt.format(flow.sink(0))})
    reader.write_rule()
    ledger = Ledger.open(reader.place.ledger, "by hand")
    line = DeltaOffset(tables.table_id(DeltaTable(flow.sink(0))), version, -1, snapshot).line()
    body = {"entry": Entry(0, (line,)).text(), "watermark": None, "maxima": {"events": None}}
    ledger.begin(1, "t", Commit(rule=reader.rule().to_json(), **body))  # type: ignore[arg-type]
    return reader


@pytest.mark.parametrize(("snapshot", "left"), [(False, 3), (True, EPOCHS + 1)])
def test_what_a_rule_that_lags_has_yet_to_read_stays(flow: Flow, snapshot: bool, left: int) -> None:
    """The first sink's version N is epoch N: files of 3, 4 and the joined one stay; or all that the snapshot has."""
    reading(flow, EPOCHS - 1, snapshot)
    assert "rule reader reads" in call(flow, "maintain", "counted", "--dry-run")
    maintain(flow)
    aged(flow)
    maintain(flow)
    assert len(files(flow.sink(0))) == left
    assert len(files(flow.sink(1))) == 1
    assert DeltaTable(flow.sink(0), version=3).version() == 3


@pytest.mark.parametrize(("opened", "snapshot", "left"), [(True, False, 3), (True, True, EPOCHS + 1), (False, True, 1)])
def test_what_an_open_backfill_of_a_reader_reads_again_stays(
    flow: Flow, opened: bool, snapshot: bool, left: int
) -> None:
    """All that its epochs have read, from where the generation began."""
    reader = reading(flow, EPOCHS - 1, snapshot)
    ledger = Ledger.open(reader.place.ledger, "by hand")
    found = intent(reader, EPOCHS + 1, None, 0, Counts(read=1, folded=1))
    ledger.intend(found)
    ledger.commit(commit(found))
    if opened:
        ledger.start_backfill(backfill())
    maintain(flow)
    aged(flow)
    maintain(flow)
    assert len(files(flow.sink(0))) == left


@pytest.mark.parametrize("spelt", ["file://{}", "{}/"])
def test_what_a_rule_has_yet_to_read_stays_however_it_spells_the_address(flow: Flow, spelt: str) -> None:
    reading(flow, EPOCHS - 1, spelt=spelt)
    maintain(flow)
    aged(flow)
    maintain(flow)
    assert len(files(flow.sink(0))) == 3


@pytest.mark.parametrize(("start", "left"), [({}, 1), ({"start": {"version": 1}}, EPOCHS + 1)])
def test_a_rule_that_is_rebuilt_needs_what_its_start_names(flow: Flow, start: dict[str, Any], left: int) -> None:
    reader = reading(flow, EPOCHS - 1, epoch="none", rebuild=True)
    reader.stream |= start
    reader.write_rule()
    maintain(flow)
    aged(flow)
    maintain(flow)
    assert len(files(flow.sink(0))) == left


def test_a_rule_whose_file_is_broken_has_its_needs_all_the_same(flow: Flow) -> None:
    reader = reading(flow, EPOCHS - 1)
    reader.write_rule().write_text("rule: reader\nstreams: 5\n")
    maintain(flow)
    aged(flow)
    maintain(flow)
    assert len(files(flow.sink(0))) == 3


def test_nothing_is_removed_while_the_ledger_of_a_rule_without_a_file_cannot_be_read(flow: Flow) -> None:
    """The system answers for a link to a name that is too long as for a disk that fails: with an error."""
    reader = reading(flow, EPOCHS - 1)
    reader.write_rule().unlink()
    log = Path(reader.place.ledger, "_delta_log")
    log.rename(log.with_name("kept"))
    log.symlink_to("x" * 300)
    before = files(flow.sink(0))
    assert "table ledger: the table cannot be read now" in call(flow, "maintain", "counted", "--yes", code=1)
    assert files(flow.sink(0)) == before
    log.unlink()
    log.with_name("kept").rename(log)
    maintain(flow)
    aged(flow)
    maintain(flow)
    assert len(files(flow.sink(0))) == 3


def test_a_table_whose_history_is_looked_up_keeps_all_of_it(flow: Flow) -> None:
    reader = Flow(flow.root, "reader", sql="SELECT e.at, e.k FROM events e JOIN t ON e.k = t.k")
    reader.settings = {"lookups": {"t": {"delta": flow.sink(0), "history": True}}}
    reader.write_rule()
    maintain(flow)
    aged(flow)
    maintain(flow)
    assert len(files(flow.sink(0))) == EPOCHS + 1 and entries(flow.sink(0))[0] == 0


@pytest.mark.parametrize(("opened", "left"), [(True, 2), (False, 1)])
def test_what_an_open_epoch_has_pinned_stays_though_its_rules_file_was_edited(
    flow: Flow, opened: bool, left: int
) -> None:
    reader = Flow(flow.root, "reader", sql="SELECT e.at, e.k, t.c FROM events e JOIN t ON e.k = t.k")
    reader.settings = {"lookups": {"t": {"delta": flow.sink(0)}}}
    ledger = begun(reader)
    pinned = {"t": Pinned(table=tables.table_id(DeltaTable(flow.sink(0))), version=1)}
    if opened:
        epoch = intent(reader, 1, None, 0, Counts(read=1, folded=1))
        ledger.intend(epoch.model_copy(update={"lookups": pinned}))
    reader.sql, reader.settings = STATELESS, {}
    reader.write_rule()
    maintain(flow)
    aged(flow)
    maintain(flow)
    assert len(files(flow.sink(0))) == left


def test_a_retired_rule_without_a_file_writes_nothing_any_more(flow: Flow) -> None:
    twin = Flow(flow.root, "twin", settings={"sinks": [{"delta": flow.sink(0)}]})
    begun(twin)
    (flow.root / "rules" / "twin.yaml").unlink()
    assert "rule twin writes it, too" in maintain(flow, "--dry-run")["left"][f"sink/{flow.sink(0)}"]
    call(flow, "retire", "twin", "--yes")
    assert maintain(flow, "--dry-run")["left"] == {}


def test_a_reader_that_is_retired_holds_nothing(flow: Flow) -> None:
    reading(flow, 2)
    call(flow, "retire", "reader", "--yes")
    maintain(flow)
    aged(flow)
    maintain(flow)
    assert len(files(flow.sink(0))) == 1


def test_what_rewrites_of_state_replaced_stays_as_long_as_the_table_says(flow: Flow) -> None:
    """Its own property goes before the rule's `cleanup`, and it is never joined here."""
    state = flow.place.state(1, "events")
    DeltaTable(state).alter.set_table_properties({FILES: "interval 100 days"})
    old = Path(state) / "part-00000-old.parquet"
    old.write_bytes(b"x")
    age(state, 60)
    assert maintain(flow)["tables"]["state/events"] == {
        "joined": 0, "removed": 0, "entries_cut": 0, "log_from": 0, "not_by_us": None,
    }  # fmt: skip
    age(state, 101)
    assert maintain(flow)["tables"]["state/events"]["removed"] == 1 and not old.exists()


@pytest.mark.parametrize("command", ["maintain", "retire"])
def test_a_full_disk_is_said_with_the_home_and_what_to_do(flow: Flow, command: str) -> None:
    owner = owner_file(flow.place.lock)
    owner.symlink_to("/dev/full")
    said = call(flow, command, "counted", "--yes", code=1)
    assert f"error: the home {flow.place.path} cannot be written: the disk is full; make room, then retry" in said
    assert not owner.is_symlink(), "it names no holder any more"
    assert "Traceback" not in said and "OSError" not in said


def test_what_cannot_be_removed_or_compacted_is_said_with_its_table(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(maintenance, "_compact", refuses)
    said = call(flow, "maintain", "counted", "--yes", code=1)
    assert "error: table counted_out0: the file system is read-only; mount it for writing, then retry" in said
    monkeypatch.undo()
    monkeypatch.setattr(TableOptimizer, "compact", refuses)
    with pytest.raises(RunFailed, match="ledger of rule counted: it cannot be compacted: the file system is read"):
        Ledger.open(flow.place.ledger, "by hand").tidy()
