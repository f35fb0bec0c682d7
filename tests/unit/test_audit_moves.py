"""Files that come and go: rows that a commit takes, brings twice or hides, each planted by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from test_audit import APP, DIGEST, LEDGER, SINK, TABLES, World, sha

from floodmark.audit.effects.allowed import cuts
from floodmark.audit.effects.effects import Effects
from floodmark.audit.effects.moves import Move, misshown, replay_log
from floodmark.audit.evidence import Base, File, LogEntry, TableLog, Vector, worst
from floodmark.audit.ledger.named import SEAL
from floodmark.audit.ledger.story import Story

RESULTS = {**DIGEST, "rows": 2}
SOME = Vector("some", 1, "deletion_vector_some.bin", 40)


def put(world: World, entry: LogEntry) -> None:
    """The entry at the end of the sink's log, with its files in the folder."""
    world.sink().append(entry)
    for file in entry.removed:
        world.live[SINK].pop(file.path, None)
    for file in entry.added:
        for files in (world.live, world.there):
            files[SINK][file.path] = file.size


def change(world: World, at: int, **values: Any) -> None:
    world.sink()[at] = replace(world.sink()[at], **values)


def merged(vector: Vector | None = None, world: World | None = None) -> World:
    """Epoch 4 inserts a row and updates one of epoch 3's, whose file is written anew or (`vector`) marked."""
    world = world or World()
    intent = world.intend(4)
    before = world.sink()[3].added[0]
    files = (File("4.parquet", 100, 2), replace(before, vector=vector)) if vector else (File("4.parquet", 100, 3),)
    digest = {**DIGEST, "rows": 2 if vector else 3}
    effect = {"inserted": 1, "updated": 1, "deleted": 0, "copied": 1}
    said = {"intent": sha(intent), "digest": digest, "results": RESULTS, "rows": 2, "epoch": 4, **effect}
    put(world, LogEntry(4, ((APP + "sink", 4 << 20),), said, "WRITE", files, (before,), changes=True))
    if vector and vector.file:
        world.there[SINK][vector.file] = vector.end
    written = {"version": 4 << 20, "commit": 4, "rows": 2, "digest": digest, "results": RESULTS}
    rest = {name: world.write(name, 4, intent, rows) for name, rows in (("late", 1), ("state/s", 4))}
    kept = {name: intent[name] for name in ("format", "entry", "watermark", "maxima", "counts")}
    tables = {f"sink/{SINK}": written, **rest}
    world.bodies.append(
        ("commit", 4, 1, {**kept, "intent": sha(intent), "tables": tables, "table_ids": {}, "output_rows": 2})
    )
    return world


def joined(world: World) -> World:
    """The files of all three epochs made one."""
    files = tuple(entry.added[0] for entry in world.sink()[1:])
    put(world, LogEntry(4, operation="OPTIMIZE", added=(File("all.parquet", 100, 6),), removed=files))
    return world


def retagged() -> World:
    """A file that is there is added again, with other statistics or tags."""
    world = World()
    put(world, LogEntry(4, operation="ROW TRACKING BACKFILL", added=world.sink()[2].added))
    return world


def purged() -> World:
    """What a deletion vector leaves out is left out by a new file."""
    world = merged(SOME)
    marked = world.sink()[4].added[1]
    put(world, LogEntry(5, operation="REORG", added=(File("purged.parquet", 90, 1),), removed=(marked,)))
    return world


@pytest.mark.parametrize(
    "world", [merged(), merged(SOME), joined(World()), joined(World(qos=1)), retagged(), purged()], ids=range(6)
)
def test_rows_that_move_as_they_should_are_proven(world: World) -> None:
    assert world.findings() == []


def also_removes(world: World) -> None:
    change(world, 2, removed=world.sink()[1].added)
    del world.live[SINK]["1.parquet"]


def copy_without_change(world: World) -> None:
    put(world, LogEntry(4, operation="OPTIMIZE", added=(File("copy.parquet", 100, 2),)))


def gone_without_change(world: World) -> None:
    put(world, LogEntry(4, operation="OPTIMIZE", removed=world.sink()[2].added))


def short_join(world: World) -> None:
    joined(world)
    change(world, 4, added=(File("all.parquet", 100, 5),))


def file_of_another_epoch(world: World) -> None:
    """Epoch 2's rows are said to be in epoch 1's file, which is there already."""
    change(world, 2, added=world.sink()[1].added)
    del world.live[SINK]["2.parquet"]


def hidden_rows(world: World) -> None:
    change(world, 2, added=(replace(world.sink()[2].added[0], vector=Vector("inline", 1)),))


def seal_that_adds(world: World) -> None:
    world.bodies.append(("seal", 3, 1, {"format": 2, "successor": 2, "token": "t2"}))
    put(world, LogEntry(4, ((APP + "sink", SEAL),), added=(File("more.parquet", 100, 2),), changes=True))


def seal_that_removes(world: World) -> None:
    world.bodies.append(("seal", 3, 1, {"format": 2, "successor": 2, "token": "t2"}))
    put(world, LogEntry(4, ((APP + "sink", SEAL),), removed=world.sink()[1].added, changes=True))


def open_that_removes(world: World) -> None:
    world.write(f"sink/{SINK}", 4, world.intend(4), 2)
    change(world, 4, removed=world.sink()[1].added)
    del world.live[SINK]["1.parquet"]


def checkpoint_without_it(world: World) -> None:
    del world.live[SINK]["2.parquet"]


def emptied_with_rows(world: World) -> None:
    """A generation that was announced has emptied the sink, and put something there."""
    world.bodies.append(("seal", 3, 1, {"format": 2, "successor": 2, "token": "t2"}))
    app = APP.replace("g1-token", "g2-t2")
    went = tuple(entry.added[0] for entry in world.sink()[1:])
    put(world, LogEntry(4, ((app + "sink", 0),), added=(File("more.parquet", 9, 2),), removed=went, changes=True))


FAULTS: list[tuple[Callable[[World], None], int, str]] = [
    (also_removes, 2, "an append that removes 1 files, with 2 rows"),
    (copy_without_change, 4, "to change no rows adds the file copy.parquet, and removes none"),
    (gone_without_change, 4, "to change no rows adds files with 0 rows and removes 2"),
    (short_join, 4, "to change no rows adds files with 5 rows and removes 6"),
    (file_of_another_epoch, 2, "the ledger has 2 rows, the commit 0"),
    (hidden_rows, 2, "its files have 1 rows, the digest of what was written is of 2"),
    (seal_that_adds, 4, "a seal that adds 1 files and removes 0"),
    (seal_that_removes, 4, "a seal that adds 0 files and removes 1"),
    (open_that_removes, 4, "an append that removes 1 files"),
    (emptied_with_rows, 4, "a commit that empties the table adds files with 2 rows"),
]


@pytest.mark.parametrize(("plant", "commit", "what"), FAULTS, ids=[plant.__name__ for plant, *_ in FAULTS])
def test_rows_that_move_otherwise_are_broken(plant: Callable[[World], None], commit: int, what: str) -> None:
    world = World()
    plant(world)
    found = world.findings()
    assert [one.commit for one in found if what in one.what and one.verdict == "broken"] == [commit], found


def row_back(world: World) -> None:
    """The file that the update has written anew stays."""
    change(world, 4, removed=())


def rows_gone(world: World) -> None:
    change(world, 4, added=())


def mark_gone(world: World) -> None:
    change(world, 4, added=(world.sink()[4].added[0], world.sink()[3].added[0]))


def one_more(world: World) -> None:
    change(world, 4, added=(*world.sink()[4].added, File("more.parquet", 100, 2)))


@pytest.mark.parametrize(
    ("world", "plant", "adds"),
    [
        (merged(), row_back, "adds files with 3 rows and removes 0, expected 3 and 2"),
        (merged(), rows_gone, "adds files with 0 rows and removes 2, expected 3 and 2"),
        (merged(SOME), mark_gone, "adds files with 4 rows and removes 2, expected 3 and 2"),
        (merged(), one_more, "adds files with 5 rows and removes 2, expected 3 and 2"),
    ],
)
def test_a_merge_that_moves_other_rows_than_it_says_is_broken(
    world: World, plant: Callable[[World], None], adds: str
) -> None:
    plant(world)
    assert [one.commit for one in world.findings() if adds in one.what] == [4]


def test_readers_who_see_other_files_than_the_entries_leave_are_broken() -> None:
    world = World()
    checkpoint_without_it(world)
    assert [(one.verdict, one.what) for one in world.findings()] == [
        ("broken", "by its entries the log has the file 2.parquet, but readers do not see it")
    ]


def test_rows_without_statistics_are_unknown_and_said_once() -> None:
    world = World()
    for at in (1, 3):
        change(world, at, added=(replace(world.sink()[at].added[0], rows=None),))
    put(joined(world), LogEntry(5, operation="OPTIMIZE"))
    (found,) = world.findings()
    assert (found.verdict, found.table, found.commit) == ("unknown", f"sink/{SINK}", 1)
    assert "how many rows 3 commits up to version 4 add and remove" in found.what


def test_a_log_that_begins_with_a_checkpoint_is_followed_from_there() -> None:
    one, two = File("1.parquet", 100, 2), File("2.parquet", 100, 3)
    went = replace(one, rows=None)  # as most writers tell of files that go
    entries = (LogEntry(7, added=(two,)), LogEntry(8, added=(File("12.parquet", 100, 5),), removed=(went, two)))
    log = TableLog("t", "id", entries, checkpoint=Base(6, {one.key: one}))
    found = replay_log(log)
    assert found.moves == {7: Move(3, 0), 8: Move(5, 5)}
    assert found.files is not None and [path for path, _ in found.files] == ["12.parquet"]
    unfounded = replay_log(replace(log, checkpoint=None))
    assert (unfounded.moves[8], unfounded.files) == (Move(5, None), None)


def test_a_vector_that_is_gone_is_broken() -> None:
    world = merged(SOME)
    del world.there[SINK]["deletion_vector_some.bin"]
    found = world.findings()
    assert worst(found) == "broken" and "deletion_vector_some.bin of 3.parquet is gone" in found[0].what


def test_a_vector_that_is_cut_off_is_broken() -> None:
    world = merged(SOME)
    world.there[SINK]["deletion_vector_some.bin"] = 39
    (found,) = world.findings()
    assert found.what.endswith("of 3.parquet has 39 bytes, the log says 40 or more")


def test_late_and_state_are_held_to_the_same() -> None:
    for table in ("late", "state/s"):
        world = World()
        log = world.logs[TABLES[table]]
        log[3] = replace(log[3], removed=log[1].added)
        assert any(one.table == table and "an append that removes" in one.what for one in world.findings())


def merge_by_its_own_word(table: str, **taking: Any) -> World:
    """Epoch 3's append takes epoch 1's file away, and says that it is a merge that deletes its rows."""
    world = World(taking=taking)
    log = world.logs[TABLES[table]]
    rows = log[3].added[0].rows
    said = {**log[3].metadata, "inserted": rows, "updated": 0, "deleted": log[1].added[0].rows, "copied": 0}
    log[3] = replace(log[3], metadata=said, removed=log[1].added)
    del world.live[TABLES[table]]["1.parquet"]
    return world


@pytest.mark.parametrize("table", [f"sink/{SINK}", "late", "state/s"])
def test_a_commit_is_no_merge_by_its_own_word(table: str) -> None:
    found = merge_by_its_own_word(table).findings()
    assert [one.commit for one in found if "an append that removes 1 files" in one.what] == [3], found


def test_a_merge_of_before_there_were_results_is_one_by_the_rules_word() -> None:
    assert merge_by_its_own_word(f"sink/{SINK}", key=["id"], delete="gone").findings() == []


def keyed(vector: Vector | None = None, **sink: Any) -> World:
    """The same as `merged`, by a rule that has a key."""
    world = World(taking={"key": ["id"], **sink})
    return merged(vector, world)


def over(world: World, **effect: int) -> None:
    change(world, 4, metadata={**world.sink()[4].metadata, **effect})


@pytest.mark.parametrize(
    ("effect", "sink", "what"),
    [
        ({}, {}, None),
        ({"updated": 0, "deleted": 1, "inserted": 1, "copied": 1}, {"delete": "gone"}, None),
        ({"updated": 0, "deleted": 1, "inserted": 1, "copied": 1}, {"where": "v > 0"}, None),
        ({"inserted": 3, "updated": 0, "copied": 0}, {}, "a merge of 2 results that claims to change 3 rows"),
        ({"deleted": 2}, {"delete": "gone"}, "a merge of 2 results that claims to change 4 rows"),
        (
            {"updated": 0, "deleted": 1},
            {},
            "a merge that claims to delete 1 rows, of a sink whose rule deletes none",
        ),
    ],
)
def test_an_upsert_changes_no_more_rows_than_it_has_results(
    effect: dict[str, int], sink: dict[str, Any], what: str | None
) -> None:
    world = keyed(**sink)
    over(world, **effect)
    told = [one.what for one in world.findings() if "a merge " in one.what]
    assert told == ([] if what is None else [what])


def test_what_came_between_the_ledgers_own_commits_is_foreign_though_the_owner_is_named_later() -> None:
    world = World()
    world.sink()[0] = replace(world.sink()[0], owner=None)
    put(world, LogEntry(4, operation="WRITE", added=(File("more.parquet", 9, 2),), changes=True))
    put(world, LogEntry(5, operation="SET TBLPROPERTIES", owner=LEDGER))
    found = world.findings()
    assert [one.commit for one in found if "is not this rule's" in one.what] == [4], found


def added_again(**values: Any) -> World:
    """Epoch 2's file is added again by a commit without change."""
    world = World()
    put(world, LogEntry(4, operation="OPTIMIZE", added=(replace(world.sink()[2].added[0], **values),)))
    return world


@pytest.mark.parametrize(
    ("world", "what"),
    [
        (added_again(partition={"k": "other"}), "is added again, with other values of the columns by which"),
        (added_again(rows=0), "is added again, with 0 rows in place of 2"),
        (added_again(vector=Vector("some", 2)), "is added again, with another deletion vector, while it is there"),
    ],
)
def test_a_file_that_is_added_again_as_another_one_is_broken(world: World, what: str) -> None:
    assert [one.commit for one in world.findings() if what in one.what] == [4]


def test_rows_that_are_marked_by_a_commit_without_change_are_broken() -> None:
    """By the log's numbers none is: the vector says that it leaves out no row."""
    world = World()
    file = world.sink()[2].added[0]
    put(world, LogEntry(4, operation="OPTIMIZE", added=(replace(file, vector=Vector("some", 0)),), removed=(file,)))
    (found,) = world.findings()
    assert found.commit == 4 and "gives the file 2.parquet another deletion vector" in found.what


def test_a_file_that_comes_without_rows_and_without_change_is_broken() -> None:
    world = World()
    put(world, LogEntry(4, operation="OPTIMIZE", added=(File("more.parquet", 9, 0),)))
    (found,) = world.findings()
    assert found.commit == 4 and "adds the file more.parquet, and removes none" in found.what


def test_files_that_are_added_again_where_the_log_begins_without_a_checkpoint_are_not_taken_for_rows() -> None:
    world = retagged()
    del world.sink()[0:2]
    found = world.findings()
    assert worst(found) == "unknown" and any("it is unknown how" in one.what for one in found)


def test_a_seal_that_the_ledger_does_not_name_is_called_one() -> None:
    world = World()
    put(world, LogEntry(4, ((APP + "sink", SEAL),)))
    assert [one.what for one in world.findings()] == ["a commit of a generation's seal that the ledger does not name"]


def test_a_table_that_cannot_be_read_is_not_said_to_be_absent() -> None:
    world = World()
    logs = {address: TableLog(address, None, readable=False) for address in TABLES.values()}
    effects = Effects(Story(world.rows()), LEDGER, "/home/r", logs)
    effects.check()
    assert effects.notes.findings == []


def shown(world: World, **values: Any) -> TableLog:
    """The sink's log with a checkpoint of version 3 that has epoch 2's file with these values."""
    files = {file.key: file for entry in world.sink() for file in entry.added}
    file = replace(files.pop(("2.parquet", "")), **values)
    types = {"k": "timestamp", "n": "decimal(9,2)"}
    return TableLog(SINK, "id", tuple(world.sink()), types=types, shown=Base(3, {**files, file.key: file}))


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({}, None),
        ({"rows": None}, None),
        ({"rows": 1}, "1 rows in place of 2"),
        ({"vector": Vector("some", 1)}, "another deletion vector, while it is there with its old one"),
        ({"partition": {"k": "2001-02-03T04:05:06.000000Z", "n": "1.50"}}, None),
        ({"partition": {"k": "2001-02-03 04:05:06", "n": "1.50"}}, None),
        ({"partition": {"k": "2001-02-03T05:05:06+01:00", "n": "1.5"}}, None),
        (
            {"partition": {"k": "2001-02-03T04:05:07Z", "n": "1.5"}},
            "other values of the columns by which the table is partitioned",
        ),
        ({"partition": {"k": None}}, "other values of the columns by which the table is partitioned"),
    ],
)
def test_a_checkpoint_must_have_files_as_the_entries_leave_them(values: dict[str, Any], what: str | None) -> None:
    world = World()
    if "partition" in values:
        file = replace(world.sink()[2].added[0], partition={"k": "2001-02-03T04:05:06.000000Z", "n": "1.50"})
        change(world, 2, added=(file,))
    log = shown(world, **values)
    told = [] if what is None else [f"the checkpoint of version 3 has the file 2.parquet with {what}"]
    assert list(misshown(log, replay_log(log).then)) == told


def test_the_bounds_that_count_are_those_of_the_checkpoint() -> None:
    log = shown(World(), bounds={"minValues": {"id": 9}})
    assert log.newest["2.parquet"].bounds == {"minValues": {"id": 9}}
    assert log.newest["1.parquet"].bounds == {}
    added_later = replace(log, shown=replace(log.shown, version=1))  # type: ignore[type-var]
    assert added_later.newest["2.parquet"].bounds == {}


CUT = "floodmark/ledger/outbox/shop-1/cut"
CHUNKS = tuple(LogEntry(n, added=(File(f"{n}.parquet", 9, 1),), changes=True) for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (LogEntry(4, ((CUT, 3),), removed=(CHUNKS[0].added[0], CHUNKS[1].added[0])), {4: 3}),
        (LogEntry(4, ((CUT, 4),), removed=(File("older.parquet", 9, 1),)), {4: 4}),
        (LogEntry(4, ((CUT, 5),), removed=(CHUNKS[0].added[0],)), {}),
        (LogEntry(4, ((CUT, 3),), removed=(CHUNKS[2].added[0],)), {}),
        (LogEntry(4, ((CUT, 3),), added=(File("new.parquet", 9, 1),)), {}),
        (LogEntry(4, ((CUT, 3),), removed=(CHUNKS[0].added[0],), changes=True), {}),
        (LogEntry(4, (("floodmark/ledger/outbox/other-1/cut", 3),), removed=(CHUNKS[0].added[0],)), {}),
    ],
    ids=["cut", "of older files", "beyond the log", "of a newer chunk", "adds", "changes", "of another outbox"],
)
def test_a_cut_takes_old_chunks_alone_out_of_an_outbox(entry: LogEntry, found: dict[int, int]) -> None:
    assert cuts(TableLog("outbox", "id", entries=(*CHUNKS, entry)), {CUT}) == found


def test_nothing_is_cut_out_of_a_sink_without_an_outbox() -> None:
    world = World()
    app = f"floodmark/{LEDGER}/outbox/x/cut"
    put(world, LogEntry(4, ((app, 4),), removed=world.sink()[1].added))
    assert "a commit of a generation that the ledger does not know" in [one.what for one in world.findings()]
