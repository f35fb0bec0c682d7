"""Every file of a ledger truncated, emptied, flipped or deleted: it is refused, or says the same, or one row less."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from support.damaging import WAYS, damage, damaged, files_in
from test_ledger import commit, first, intent
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.core.protocol.records.headtext import head_from_text, head_to_text
from floodmark.core.protocol.records.rows import Row
from floodmark.errors import LedgerBroken
from floodmark.ledger import ledger as module
from floodmark.ledger.delta.damage import drop_checksums, listed, why_unreadable
from floodmark.ledger.delta.hadoopsums import sums_of
from floodmark.ledger.ledger import Ledger, LedgerReader

EPOCHS, SEEDS = 12, range(2)  # enough rows for a rewrite of the files in the middle, and a checkpoint of the log
SPARE = 3  # files that were replaced, and log entries below the checkpoint: so many of each are damaged


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """A ledger with rewritten files, a checkpoint, a remembered head and an open intent; and its rows."""
    address = tmp_path_factory.mktemp("home") / "r" / "ledger"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "COMPACT_ABOVE", 12)
        patch.setattr(module, "REMEMBER_EVERY", 12)
        ledger = Ledger.open(str(address), "one")
        ledger.begin(1, "token", first())
        for place in range(1, EPOCHS + 1):
            planned = intent(place)
            ledger.intend(planned)
            ledger.commit(commit(planned))
            if place == 6:
                ledger = Ledger.open(str(address), "two")
        ledger.intend(intent(EPOCHS + 1))
    return address, ledger.rows


def needed(address: Path) -> list[Path]:
    """Its files; of those that no reader needs any more, some."""
    live = {Path(uri).name for uri in DeltaTable(str(address)).file_uris()}
    log = listed(file.name for file in (address / "_delta_log").iterdir())
    spare = [file for file in address.glob("*.parquet") if file.name not in live]
    spare_log = [address / "_delta_log" / name for name in log.entries.values() if name not in log.tail()]
    others = [file for file in files_in(address) if file not in spare and file not in spare_log]
    return [*others, *spare[:SPARE], *spare_log[-SPARE:], Path(f"{address}.head")]


def outcome(address: Path, rows: list[Row]) -> str:
    """Whatever the head is read from is true or refused; then so are all rows together."""
    try:
        found = LedgerReader.load(str(address))
        assert found is not None and found.head is not None
        assert found.head.seq in (len(rows), len(rows) - 1)
        assert found.rows == rows[: found.head.seq]
    except LedgerBroken as fault:
        return _named(address, str(fault))
    return "harmless" if found.head.seq == len(rows) else "one row less"


def _named(address: Path, said: str) -> str:
    assert str(address) in said or "the ledger's row" in said
    assert "from a copy of the home" in said and "floodmark reset" not in said
    return "refused"


def test_damage_to_any_file_is_refused_or_harmless(
    made: tuple[Path, list[Row]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, rows = made
    counts: Counter[str] = Counter()
    newest = max(file for file in files_in(address) if file.suffix == ".json")
    for file in needed(address):
        for how in WAYS:
            for seed in SEEDS if how == "flipped" else [0]:
                with damaged(file, how, seed):
                    found = outcome(address, rows)
                if found == "one row less":
                    assert file == newest and how in ("deleted", "emptied")
                counts[f"{how}: {found}"] += 1
    assert outcome(address, rows) == "harmless"
    assert counts["deleted: one row less"] == counts["emptied: one row less"] == 1
    assert all(counts[f"{how}: refused"] > 10 and counts[f"{how}: harmless"] for how in WAYS)
    with capsys.disabled():
        print(f"\nledger: {counts.total()} damages: {dict(sorted(counts.items()))}")


def test_a_ledger_that_lost_its_newest_row_announces_the_epoch_again(made: tuple[Path, list[Row]]) -> None:
    """Its newest row was an intent: the head is the commit before. What tables have recorded decides the rest."""
    address, rows = made
    newest = max(file for file in files_in(address) if file.suffix == ".json")
    with damaged(newest, "deleted"):
        found = LedgerReader.load(str(address))
        assert found is not None and found.head is not None
        assert (found.head.seq, found.head.open, found.head.epoch) == (rows[-2].seq, None, EPOCHS)


@pytest.mark.parametrize("how", ["truncated", "deleted"])
def test_the_auditor_says_broken_and_the_commands_3(made: tuple[Path, list[Row]], how: str) -> None:
    address, _ = made
    [file] = [Path(uri) for uri in DeltaTable(str(address)).file_uris()][:1]
    with damaged(Path(str(file).removeprefix("file:")), how):
        said = CliRunner().invoke(app, ["audit", "r", "--home", str(address.parents[1])])
    assert (said.exit_code, "BROKEN" in said.output, "cannot be read" in said.output) == (3, True, True), said.output


@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_id_in_which_a_bit_has_turned_is_not_taken_for_the_ledgers(tmp_path: Path, checkpoint: bool) -> None:
    """All else in a log of a ledger has a second witness."""
    address = str(tmp_path / "ledger")
    ledger = Ledger.open(address, "one")
    ledger.begin(1, "token", first())
    other = chr(ord(ledger.id[0]) ^ 1) + ledger.id[1:]
    if checkpoint:
        DeltaTable(address).create_checkpoint()
        [file] = (tmp_path / "ledger" / "_delta_log").glob("*.checkpoint.parquet")
        pq.write_table(_with_id(pq.read_table(file), other), file)
    else:
        entry = tmp_path / "ledger" / "_delta_log" / f"{0:020}.json"
        entry.write_text(entry.read_text().replace(ledger.id, other))
    with pytest.raises(
        LedgerBroken, match=f"its id is {other} in the log and {ledger.id} in its rows: .* copy of the home"
    ):
        LedgerReader.load(address)


def _with_id(checkpoint: pa.Table, other: str) -> pa.Table:
    place = checkpoint.schema.get_field_index("metaData")
    rows = [row and {**row, "id": other} for row in checkpoint["metaData"].to_pylist()]
    field = checkpoint.schema.field(place)
    return checkpoint.set_column(place, field, pa.array(rows, field.type))


def test_a_remembered_head_that_was_changed_is_no_head(made: tuple[Path, list[Row]]) -> None:
    address, _ = made
    found = LedgerReader.load(str(address))
    assert found is not None and found.head is not None
    text = head_to_text(found.head)
    assert head_from_text(text) == found.head
    assert head_from_text(text.replace('"epoch":12', '"epoch":11')) is None
    assert head_from_text("") is None


def test_a_remembered_head_that_cannot_be_read_or_written_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REMEMBER_EVERY", 1)
    head = Ledger.open(str(tmp_path / "ledger"), "one").begin(1, "token", first())
    (tmp_path / "ledger.head").mkdir()
    assert Ledger.open(str(tmp_path / "ledger"), "two").head == head
    (tmp_path / "ledger.head").rmdir()
    assert Ledger.open(str(tmp_path / "ledger"), "three").head == head
    assert head_from_text((tmp_path / "ledger.head").read_text()) == head


def test_the_file_that_keeps_a_table_from_being_read_is_named(made: tuple[Path, list[Row]]) -> None:
    address, _ = made
    log = address / "_delta_log"
    found = listed(file.name for file in log.iterdir())
    assert why_unreadable(str(address)) is None
    for name, how, said in (
        (found.tail()[0], "deleted", "is missing"),
        (found.tail()[-1], "truncated", "is not JSON"),
        (found.checkpoints[found.base][0], "truncated", "remove it and _last_checkpoint"),
        ("_last_checkpoint", "truncated", "only a hint: remove it"),
    ):
        with damaged(log / name, how):
            assert said in str(why_unreadable(str(address)))


def test_a_checkpoint_of_actions_is_judged_as_one(tmp_path: Path) -> None:
    """Delta's second kind: JSON, whose rows may lie in files of their own."""
    log = tmp_path / "_delta_log"
    (log / "_sidecars").mkdir(parents=True)
    (log / f"{7:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_text(
        '{"checkpointMetadata":{"version":7}}\n{"sidecar":{"path":"one.parquet","sizeInBytes":9}}\n'
    )
    assert "the checkpoint" in str(why_unreadable(str(tmp_path))), "what it names is not there"
    pq.write_table(pa.table({"n": [1]}), log / "_sidecars" / "one.parquet")
    assert why_unreadable(str(tmp_path)) is None
    (log / f"{8:020}.json").write_text("{")
    assert f"{8:020}.json is truncated" in str(why_unreadable(str(tmp_path)))
    damage(next(log.glob("*.checkpoint.*")), "truncated")
    assert "the checkpoint" in str(why_unreadable(str(tmp_path)))


def test_a_checkpoint_whose_names_are_no_text_cannot_be_read(tmp_path: Path) -> None:
    """One bit may be enough; pyarrow raises no error of its own then."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    file = log / f"{7:020}.checkpoint.parquet"
    pq.write_table(pa.table({"some_name": [1]}), file)
    file.write_bytes(file.read_bytes().replace(b"some_name", b"some_nam\xe5"))
    assert f"the checkpoint {file} cannot be read" in str(why_unreadable(str(tmp_path)))


def test_a_checksum_of_a_commit_that_was_lost_goes(tmp_path: Path) -> None:
    """Delta's own, and Hadoop's of the log entry."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    lost = [f"{1:020}.crc", f".{1:020}.json.crc"]
    for name in (f"{0:020}.json", f"{0:020}.crc", *lost):
        (log / name).write_text("{}")
    sums = log / f".{0:020}.json.crc"
    sums.write_bytes(sums_of(b"{}"))
    assert drop_checksums(str(tmp_path)) == lost
    assert drop_checksums(str(tmp_path)) == []
    assert sums.exists()
