"""The certificate of a real home, and what is planted in its ledger, its logs and its files."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from support.audited import Made, rows_of_epoch, said
from typer.testing import CliRunner

from floodmark.audit.certificate import audit, ended_by
from floodmark.audit.evidence import Row, Since
from floodmark.audit.logreader import read_table
from floodmark.cli.app import app


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path, 3)


@pytest.mark.parametrize("deep", [False, True])
def test_a_home_is_proven(made: Made, deep: bool) -> None:
    assert made.verdicts(deep) == []


def test_a_ledger_without_its_newest_row_is_broken(made: Made) -> None:
    DeltaTable(str(made.home / "ledger")).delete("seq = 7")
    assert made.verdicts()[0] == (
        "broken", "the ledger's log tells of 7 rows, found 6: rows or entries of its log were removed"
    )  # fmt: skip


def test_a_ledger_put_back_to_an_older_version_is_broken(made: Made) -> None:
    made.put("life", 3, {"format": 5, "what": "retired"})
    made.save()
    assert made.verdicts() == []
    ledger = DeltaTable(str(made.home / "ledger"))
    ledger.restore(ledger.version() - 1)
    assert [verdict for verdict, what in made.verdicts() if "tells of 8 rows, found 7" in what] == ["broken"]


def test_a_commit_of_files_with_different_types_is_broken(made: Made) -> None:
    """Of two files of one commit the second has text where the table has numbers."""
    actions = [json.loads(line) for line in made.log(f"sink/{made.sink}", 2).read_text().splitlines()]
    add: dict[str, Any] = actions.pop()["add"]
    for name, rows in (("2", rows_of_epoch(2).slice(0, 1)), ("2b", pa.table({"id": ["x"]}))):
        file = made.sink / f"{name}.parquet"
        pq.write_table(rows, file)
        more = {"path": file.name, "size": file.stat().st_size, "stats": '{"numRecords":1}'}
        actions.append({"add": {**add, **more}})
    made.log(f"sink/{made.sink}", 2).write_text("\n".join(map(json.dumps, actions)))
    assert made.verdicts() == []
    ((verdict, what),) = made.verdicts(deep=True)
    assert verdict == "broken" and what.startswith("a file cannot be read: Unable to merge")


def test_metadata_that_cannot_be_followed_are_broken_at_their_place_and_hide_nothing_else(made: Made) -> None:
    """Of a commit's digest the number of rows is missing; of another table a file is gone."""
    log = made.log(f"sink/{made.sink}", 2)
    log.write_text(log.read_text().replace('\\"digest\\": {\\"rows\\": 2, ', '\\"digest\\": {'))
    (made.home / "late" / "3.parquet").unlink()
    found = audit("r", made.home.parent, deep=False)
    assert found is not None
    told = [(one.table, one.epoch, one.commit) for one in found.findings if "cannot be followed (KeyError" in one.what]
    assert told == [(f"sink/{made.sink}", 2, 2)]
    assert [one.what for one in found.findings if one.table == "late"] == ["the file 3.parquet is gone"]


def edit(place: Path, *, drop: bool = False) -> None:
    """Another row, or one less, in the only file of the newest version, whose size in the log is made to fit."""
    table = DeltaTable(str(place))
    (path,) = table.file_uris()
    file, log = Path(path), place / "_delta_log" / f"{table.version():020}.json"
    size, rows = file.stat().st_size, pq.ParquetFile(file).read()
    kept = rows.slice(1)
    pq.write_table(kept if drop else pa.concat_tables([kept, pa.table({"id": [999]}, rows.schema)]), file)
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{file.stat().st_size}'))


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("name", ["sink", "late", "state/s"])
def test_files_that_were_joined_are_read_though_those_before_still_lie_there(made: Made, name: str, drop: bool) -> None:
    place = made.places.get(name, made.sink)
    DeltaTable(str(place)).optimize.compact()
    assert made.verdicts(deep=True) == []
    edit(place, drop=drop)
    ((verdict, what),) = made.verdicts(deep=True)
    assert verdict == "broken" and "the files that 3 commits were joined into hold other rows" in what


def test_state_that_was_joined_and_vacuumed_is_read_as_well(made: Made) -> None:
    place = made.places["state/s"]
    DeltaTable(str(place)).optimize.compact()
    for number in range(1, 4):
        (place / f"{number}.parquet").unlink()
    assert made.verdicts(deep=True) == []
    edit(place, drop=True)
    assert [verdict for verdict, _ in made.verdicts(deep=True)] == ["broken"]


def rewritten(made: Made, **told: Any) -> None:
    """State of three epochs is rewritten to its live rows, and the replaced files are removed."""
    rows = pa.concat_tables(map(rows_of_epoch, (2, 3)))
    effect = {"inserted": 4, "updated": 0, "deleted": 6, "copied": 0}
    metadata = json.dumps({"holds_from": 3, "after": 3, "digest": said(rows), **effect, **told})
    more = CommitProperties(custom_metadata={"userMetadata": metadata})
    write_deltalake(str(made.places["state/s"]), rows, mode="overwrite", commit_properties=more)
    for number in range(1, 4):
        (made.places["state/s"] / f"{number}.parquet").unlink()


@pytest.mark.parametrize("drop", [False, True])
def test_rows_that_a_rewrite_of_state_left_are_compared_with_its_digest(made: Made, drop: bool) -> None:
    rewritten(made)
    found = audit("r", made.home.parent, deep=True)
    assert found is not None and (found.findings, found.tables["state/s"].recomputed) == ([], 1)
    edit(made.places["state/s"], drop=drop)
    assert made.verdicts() == []
    ((verdict, what),) = made.verdicts(deep=True)
    assert verdict == "broken" and what.startswith("its files hold other rows than the commit says")


def test_a_rewrite_of_state_whose_files_are_gone_in_turn_is_proven(made: Made) -> None:
    rewritten(made)
    place = made.places["state/s"]
    (first,) = DeltaTable(str(place)).file_uris()
    more = CommitProperties(custom_metadata={"userMetadata": json.dumps({"holds_from": 3})})  # by older code
    write_deltalake(str(place), rows_of_epoch(3), mode="overwrite", commit_properties=more)
    assert made.verdicts(deep=True) == []
    Path(first).unlink()
    assert made.verdicts(deep=True) == []


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({"inserted": 5}, "the commit adds files with 4 rows and removes 6, expected 5 and 6"),
        ({"deleted": 5}, "the commit adds files with 4 rows and removes 6, expected 4 and 5"),
        ({"digest": said(rows_of_epoch(2))}, "its files have 4 rows, the digest of what was written is of 2"),
    ],
)
def test_a_rewrite_of_state_that_moves_other_rows_than_it_says_is_broken(made: Made, told: Any, what: str) -> None:
    rewritten(made, **told)
    assert made.verdicts() == [("broken", what)]


def test_what_an_older_generation_left_in_a_sink_is_read(made: Made) -> None:
    made.reset(3)
    assert made.verdicts(deep=True) == []
    file = made.sink / "2.parquet"
    size = file.stat().st_size
    pq.write_table(pa.table({"id": pa.array([20, 999], pa.int64())}), file)
    log = made.log(f"sink/{made.sink}", 2)
    log.write_text(log.read_text().replace(f'"size": {size}', f'"size": {file.stat().st_size}'))
    assert made.verdicts() == []
    ((verdict, what),) = made.verdicts(deep=True)
    assert verdict == "broken" and what.startswith("its files hold other rows than the ledger says")


def test_a_dropped_table_is_unknown_to_a_verdict_on_the_newest_generation_that_has_it(made: Made) -> None:
    sink = f"sink/{made.sink}"
    made.reset(3, {sink: {"version": 1, "commit": 4, "rows": 0}})
    dropping = {"tables": {sink: made.ids[sink]}}
    for what, told in (("retired", {}), ("dropping", dropping), ("dropped", {})):
        made.put("life", 0, {"format": 5, "what": what, **told}, 2, "second")
    made.save()
    found = audit("r", made.home.parent, deep=True, since=0)
    assert found is not None and found.verdict == "unknown"
    ((generation, what),) = [(one.generation, one.what) for one in found.findings]
    assert generation == 2 and what.startswith("the table was dropped at by run")


@pytest.mark.parametrize("what", ["dead", "dead/_delta_log"])
def test_a_table_that_has_no_rows_yet_is_missed_too(made: Made, what: str) -> None:
    shutil.rmtree(made.home / what)
    assert made.verdicts() == [("broken", f"there is no table at {made.home / 'dead'}")]


def test_a_table_that_made_way_for_another_by_a_reset_is_unknown(made: Made) -> None:
    """The way out where a log is harmed: its folder is removed, and the next generation makes it anew."""
    for name in ("late", "dead"):
        shutil.rmtree(made.places[name])
        made.ids[name] = made.owned(made.places[name])
    before = DeltaTable(str(made.places["late"])).metadata().id
    made.reset(3)
    for deep in (False, True):
        ((verdict, what),) = made.verdicts(deep)
        assert verdict == "unknown" and what.startswith("the table that generation 1 wrote, with id ")
        assert str(before) not in what
    shutil.rmtree(made.places["late"])
    assert ("broken", f"there is no table at {made.places['late']}") in made.verdicts()


def test_a_log_that_a_checkpoint_alone_tells_of_is_unknown(made: Made) -> None:
    DeltaTable(str(made.sink)).create_checkpoint()
    for version in range(4):
        made.log(f"sink/{made.sink}", version).unlink()
    ((verdict, what),) = made.verdicts()
    assert (verdict, what) == (
        "unknown",
        "3 of its commits, up to this epoch, cannot be looked up: the log begins at version 4",
    )


def test_what_is_left_of_a_cut_log_is_proven_since_its_first_epoch(made: Made) -> None:
    """Each report begins with the last epoch of the one before, so together they prove all epochs."""
    DeltaTable(str(made.sink)).create_checkpoint()
    for version in range(3):
        made.log(f"sink/{made.sink}", version).unlink()
    whole = audited(made, code=1)
    assert "r: UNKNOWN: no contradiction found" in whole
    assert "everything from epoch 3 of generation 1 on is proven (--since)" in whole
    said = audited(made, "--since", "3")
    assert "r: PROVEN since epoch 3 of generation 1: " in said
    assert "1 findings on earlier epochs do not count" in said and "UNKNOWN" not in said
    assert "r: UNKNOWN since epoch 2 of generation 1: " in audited(made, "--since", "2", code=1)
    facts = json.loads(audited(made, "--since", "3", "--json"))
    assert (facts["verdict"], facts["since"]) == ("proven", {"generation": 1, "epoch": 3})
    assert [(one["epoch"], one["counts"]) for one in facts["findings"]] == [(2, False)]
    for wrong, expected in (("4", "expected an epoch from 0 to 3"), ("x", "expected an epoch, such as 311, or a time")):
        assert expected in audited(made, "--since", wrong, code=2)
    (made.home / "late" / "3.parquet").unlink()
    assert "r: BROKEN since epoch 3 of generation 1: " in audited(made, "--since", "3", code=3)


def audited(made: Made, *words: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["audit", "r", "--home", str(made.home.parent), *words], env={"COLUMNS": "200"})
    assert found.exit_code == code, found.output
    return found.output


def test_a_time_means_the_last_epoch_that_had_ended_by_then() -> None:
    ends = [("commit", 1, 0), ("intent", 1, 1), ("commit", 1, 1), ("lost", 1, 2), ("seal", 1, 2), ("commit", 2, 0)]
    rows = [
        Row(i, kind, generation, "", epoch, 1, "run", f"2001-01-01T00:0{i}:00.000000Z", "", "", "")
        for i, (kind, generation, epoch) in enumerate(ends)
    ]
    at = [ended_by(rows, datetime(2001, 1, 1, 0, minute, tzinfo=UTC)) for minute in range(6)]
    assert at == [Since(1, 0), Since(1, 0), Since(1, 1), Since(1, 2), Since(1, 2), Since(2, 0)]
    assert ended_by(rows, datetime(2000, 1, 1, tzinfo=UTC)) == Since(1, 0)
    assert ended_by(rows) == Since(2, 0)
    forged = [*rows[:-1], replace(rows[-1], at="forged")]
    assert ended_by(forged, datetime(2001, 1, 2, tzinfo=UTC)) == Since(1, 2)


def test_a_ledger_that_is_gone_is_broken_as_long_as_the_rules_tables_are_there(made: Made) -> None:
    shutil.rmtree(made.home / "ledger" / "_delta_log")
    ((verdict, what),) = made.verdicts()
    assert verdict == "broken" and what.endswith("though the rule has written: late, dead, state")
    shutil.rmtree(made.home)
    assert audit("r", made.home.parent, deep=False) is None


def foreign(made: Made) -> None:
    """Somebody's rows, then properties, whose commit names the owner once more."""
    write_deltalake(str(made.sink), rows_of_epoch(9), mode="append")
    DeltaTable(str(made.sink)).alter.set_table_properties({"delta.appendOnly": "false"})


FOREIGN = "a commit (WRITE) that changes rows and is not this rule's"


@pytest.mark.parametrize("checkpoint", [None, 0, 1])
def test_a_foreign_commit_is_found_though_the_log_does_not_tell_any_more_since_when_the_table_is_ours(
    made: Made, checkpoint: int | None
) -> None:
    """`checkpoint`: with which the log begins, if any; its entry stays or not."""
    if checkpoint is not None:
        DeltaTable(str(made.sink), version=checkpoint).create_checkpoint()
    foreign(made)
    DeltaTable(str(made.sink)).create_checkpoint()
    assert FOREIGN in [what for verdict, what in made.verdicts() if verdict == "broken"]
    made.log(f"sink/{made.sink}", 0).unlink()
    assert FOREIGN in [what for verdict, what in made.verdicts() if verdict == "broken"]


def test_a_value_may_hold_what_some_take_for_ends_of_lines(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"k": ["a\u2028b\u2029c\u0085d"]}))
    assert len(read_table(str(tmp_path)).entries) == 1


def test_a_table_with_a_feature_that_cannot_be_read_here_is_unknown_and_told_once(made: Made) -> None:
    feature = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}
    made.log(f"sink/{made.sink}", 4).write_text(json.dumps({"protocol": feature}))
    ((verdict, what),) = made.verdicts(deep=True)
    assert verdict == "unknown" and "cannot be read" in what


def test_a_ledger_with_cells_of_another_type_is_broken_and_no_error(made: Made) -> None:
    place = str(made.home / "ledger")
    rows = pa.Table.from_pylist([{**row.__dict__, "at": b"at"} for row in made.rows])
    write_deltalake(place, rows, mode="overwrite", schema_mode="overwrite")
    ((verdict, what),) = made.verdicts()
    assert verdict == "broken" and "have in `at` no str, such as row 1, which has bytes" in what
