"""What a certificate says of a ledger and of logs, each fault planted by itself. Nothing here touches a disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from floodmark.audit.content.content import differences
from floodmark.audit.content.rowhash import RowDigest, Sums
from floodmark.audit.effects.effects import Effects
from floodmark.audit.evidence import Base, File, Finding, LogEntry, Row, Since, TableLog, decided_since, worst
from floodmark.audit.ledger.balance import Place, _moved, balanced, excess_rejections, refilled, repeated_offsets
from floodmark.audit.ledger.chain import chained, hash_of, misshapen
from floodmark.audit.ledger.named import SEAL
from floodmark.audit.ledger.story import Story

LEDGER, HOME, SINK = "ledger-id", "/home/r", "/lake/out"
APP = f"floodmark/{LEDGER}/g1-token/"
DIGEST = {"rows": 2, "high": "5", "low": "7", "floats": {}}
TABLES = {f"sink/{SINK}": SINK, "late": f"{HOME}/late", "dead": f"{HOME}/dead", "state/s": f"{HOME}/state/g1/s"}
ZERO = {"read": 0, "filtered": 0, "dead": 0, "late": 0, "folded": 0}


def entry(version: int, index: int = -1, table: str = "source") -> str:
    line = {"sourceVersion": 1, "reservoirId": table, "reservoirVersion": version, "index": index,
            "isStartingVersion": False}  # fmt: skip
    return "\n".join(("v1", json.dumps({"batchTimestampMs": 1}), json.dumps(line)))


MOVED = ", the newest address that the ledger has for it; the next run records where one lies that was moved"


@dataclass
class World:
    """A ledger of three epochs, and the logs that belong to it. `bodies`: of its rows, before they are chained;
    `form`: the format of its intents."""

    qos: int = 2
    late: str = "keep"
    epochs: int = 3
    taking: dict[str, Any] = field(default_factory=dict)
    output: int = 2
    form: int = 2
    bodies: list[tuple[str, int, int, dict[str, Any]]] = field(default_factory=list)
    logs: dict[str, list[LogEntry]] = field(default_factory=dict)
    live: dict[str, dict[str, int]] = field(default_factory=dict)
    there: dict[str, dict[str, int]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    base: dict[str, Base | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = LogEntry(0, operation="CREATE TABLE", owner=LEDGER)
        self.logs = {address: [first] for address in TABLES.values()}
        begun = {"format": 2, "entry": entry(1), "watermark": None, "maxima": {}, "counts": {}, "tables": {},
                 "table_ids": dict.fromkeys(TABLES, "id"), "intent": None, "output_rows": 0}  # fmt: skip
        self.bodies.append(("commit", 0, 1, begun))
        for number in range(1, self.epochs + 1):
            self.fold(number)

    @property
    def rule(self) -> str:
        sink = {"kind": "delta", "address": SINK, "qos": self.qos, **self.taking}
        return json.dumps({"qos": self.qos, "streams": {"s": {}}, "sinks": [sink], "late": self.late})

    def intend(self, number: int, attempt: int = 1) -> dict[str, Any]:
        counts = {"s": {**ZERO, "read": 5, "folded": 4, "late": 1}}
        body = {"format": self.form, "entry": entry(number + 1), "watermark_before": number - 1 or None,
                "watermark": number, "maxima": {}, "counts": counts, "rule": self.rule}  # fmt: skip
        self.bodies.append(("intent", number, attempt, body))
        return body

    def fold(self, number: int) -> None:
        intent = self.intend(number)
        rows = {f"sink/{SINK}": 2, "late": 1 if self.late == "keep" else 0, "state/s": 4}
        tables = {name: self.write(name, number, intent, count) for name, count in rows.items() if count}
        kept = {name: intent[name] for name in ("format", "entry", "watermark", "maxima", "counts")}
        body = {**kept, "intent": sha(intent), "tables": tables, "table_ids": {}, "output_rows": self.output}
        self.bodies.append(("commit", number, 1, body))

    def write(self, table: str, number: int, intent: dict[str, Any], rows: int) -> dict[str, Any]:
        log = self.logs[TABLES[table]]
        file = File(f"{number}.parquet", 100, rows)
        said = {"app": APP + table.partition("/")[0], "version": number << 20, "epoch": number, "intent": sha(intent),
                "digest": {**DIGEST, "rows": rows}}  # fmt: skip
        log.append(
            LogEntry(log[-1].version + 1, ((said["app"], said["version"]),), said, "WRITE", (file,), changes=True)
        )
        for files in (self.live, self.there):
            files.setdefault(TABLES[table], {})[file.path] = file.size
        return {"version": number << 20, "commit": log[-1].version, "rows": rows, "digest": said["digest"]}

    def rows(self) -> list[Row]:
        found: list[Row] = []
        for kind, epoch, attempt, body in self.bodies:
            before = found[-1].hash if found else ""
            row = Row(len(found) + 1, kind, 1, "token", epoch, attempt, "run", "at", json.dumps(body), before, "")
            found.append(replace(row, hash=hash_of(row)))
        return found

    def findings(self, rows: list[Row] | None = None) -> list[Finding]:
        rows = self.rows() if rows is None else rows
        story = Story(rows)
        logs = {
            address: TableLog(
                address,
                "id",
                tuple(self.logs[address]),
                self.live.get(address, {}),
                self.there.get(address, {}),
                checkpoint=self.base.get(address),
            )
            for address in self.logs
        }
        logs |= {address: TableLog(address, None) for address in self.gone}
        effects = Effects(story, LEDGER, HOME, logs)
        effects.check()
        checks = (excess_rejections, refilled)
        apart = (finding for check in checks for generation in story.generations for finding in check(generation))
        each = (finding for epoch in story.epochs for finding in balanced(epoch))
        return [*chained(rows), *story.findings, *each, *apart, *effects.notes.findings]

    def sink(self) -> list[LogEntry]:
        return self.logs[SINK]


def sha(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()


def changed(world: World, at: int, **values: Any) -> None:
    kind, epoch, attempt, body = world.bodies[at]
    world.bodies[at] = (kind, epoch, attempt, {**body, **values})


def test_a_ledger_and_its_logs_are_proven() -> None:
    assert World().findings() == []
    assert worst([]) == "proven"


@pytest.mark.parametrize(
    ("taking", "output", "whole"),
    [
        ({"where": "v > 0", "key": []}, 3, True),
        ({"where": "v > 0", "key": []}, 1, False),
        ({"where": "v > 0", "key": ["k"]}, 3, False),
        ({"where": None, "key": []}, 3, False),
    ],
)
def test_only_a_sink_that_leaves_out_results_may_have_fewer_than_there_are(
    taking: dict[str, Any], output: int, whole: bool
) -> None:
    found = World(taking=taking, output=output).findings()
    assert [finding.verdict for finding in found] == ([] if whole else ["broken"] * 3)
    assert whole or f"the epoch has {output} rows for it" in found[0].what


def doubled(world: World) -> None:
    world.sink().append(replace(world.sink()[2], version=4))


def foreign(world: World) -> None:
    world.sink().append(LogEntry(4, operation="WRITE", changes=True))


def cut_off(world: World) -> None:
    world.sink().pop()


def hole(world: World) -> None:
    world.sink().pop(2)


def dropped_from_the_log(world: World) -> None:
    world.sink()[2] = replace(world.sink()[2], added=())


def dropped_from_the_folder(world: World) -> None:
    del world.there[SINK]["2.parquet"]


def shortened(world: World) -> None:
    world.there[SINK]["2.parquet"] = 99


def other_intent(world: World) -> None:
    world.sink()[2] = replace(world.sink()[2], metadata={**world.sink()[2].metadata, "intent": "other"})


def other_digest(world: World) -> None:
    world.sink()[2] = replace(world.sink()[2], metadata={**world.sink()[2].metadata, "digest": {**DIGEST, "low": "8"}})


def no_digest(world: World) -> None:
    said = {name: value for name, value in world.sink()[2].metadata.items() if name != "digest"}
    world.sink()[2] = replace(world.sink()[2], metadata={**said, "attempt": 1})


def other_app(world: World) -> None:
    world.sink()[2] = replace(world.sink()[2], transactions=(("somebody", 1),))


def unknown_epoch(world: World) -> None:
    world.sink().append(LogEntry(4, ((APP + "sink", 9 << 20),), {}, "WRITE", changes=True))


def goes_back(world: World) -> None:
    world.sink().append(LogEntry(4, (("somebody", 7),)))
    world.sink().append(LogEntry(5, (("somebody", 6),)))


def sealed_too_early(world: World) -> None:
    world.sink().append(LogEntry(4, ((APP + "sink", SEAL),)))


def not_named(world: World) -> None:
    del world.bodies[4][3]["tables"][f"sink/{SINK}"]


def late_not_named(world: World) -> None:
    del world.bodies[4][3]["tables"]["late"]


FAULTS: list[tuple[Callable[[World], None], int | None, int | None, str]] = [
    (doubled, 2, 4, "once more: the ledger names commit 2"),
    (foreign, None, 4, "is not this rule's"),
    (cut_off, 3, 3, "the log ends at 2"),
    (hole, 2, 2, "though it has older and newer ones"),
    (dropped_from_the_log, 2, 2, "the ledger has 2 rows, the commit 0"),
    (dropped_from_the_folder, 2, 2, "2.parquet is gone"),
    (shortened, 2, 2, "99 bytes"),
    (other_intent, 2, 2, "another intent"),
    (other_digest, 2, 2, "`digest` in the commit's metadata"),
    (no_digest, 2, 2, "`digest` in the commit's metadata"),
    (other_app, 2, 2, "does not record version"),
    (unknown_epoch, 9, 4, "of epoch 9 that the ledger does not name"),
    (goes_back, None, 5, "goes back from version 7 to 6"),
    (sealed_too_early, None, 4, "does not name"),
    (not_named, 2, None, "the epoch has 2 rows for it, the ledger names none"),
]


@pytest.mark.parametrize(("plant", "epoch", "commit", "what"), FAULTS, ids=[plant.__name__ for plant, *_ in FAULTS])
def test_a_planted_fault_is_broken_and_has_its_place(
    plant: Callable[[World], None], epoch: int | None, commit: int | None, what: str
) -> None:
    world = World()
    plant(world)
    found = world.findings()
    assert worst(found) == "broken"
    told = [one for one in found if what in one.what]
    assert [(one.epoch, one.commit, one.table) for one in told] == [(epoch, commit, f"sink/{SINK}")], found


def test_late_rows_that_the_rule_drops_are_in_no_table() -> None:
    assert worst(World(late="drop").findings()) == "proven"


def test_late_rows_without_a_commit_are_broken() -> None:
    world = World()
    late_not_named(world)
    assert [one.table for one in world.findings() if "rows for it" in one.what] == ["late"]


def test_a_pruned_log_is_unknown_and_says_from_where_on() -> None:
    world = World()
    del world.sink()[:3]
    found = world.findings()
    assert worst(found) == "unknown"
    assert [(one.table, one.commit, one.what) for one in found] == [
        (f"sink/{SINK}", 3, "2 of its commits, up to this epoch, cannot be looked up: the log begins at version 3")
    ]


@pytest.mark.parametrize(
    ("finding", "since", "left_out"),
    [
        (Finding("unknown", "", 1, 3), Since(1, 4), True),
        (Finding("unknown", "", 1, 4), Since(1, 4), False),
        (Finding("unknown", "", 1, 9), Since(2, 0), True),
        (Finding("unknown", "", 1), Since(2, 0), True),
        (Finding("unknown", "", 1), Since(1, 9), False),
        (Finding("unknown", ""), Since(2, 9), False),
        (Finding("broken", "", 1, 3), Since(2, 9), False),
    ],
)
def test_what_is_unknown_of_earlier_epochs_alone_is_left_out(finding: Finding, since: Since, left_out: bool) -> None:
    assert since.leaves_out(finding) is left_out


def test_everything_is_decided_since_the_epoch_after_the_last_that_is_not() -> None:
    found = [Finding("unknown", "", 1, 3), Finding("unknown", "", 1, 1)]
    assert decided_since(found, Since(1, 4)) == Since(1, 4)
    assert decided_since(found, Since(1, 3)) is None, "no epoch has come since"
    assert decided_since([], Since(1, 3)) is None
    for other in (Finding("unknown", ""), Finding("unknown", "", 1), Finding("broken", "", 1, 1)):
        assert decided_since([*found, other], Since(1, 4)) is None


def test_a_forged_row_is_broken_where_it_stands() -> None:
    rows = World().rows()
    rows[2] = replace(rows[2], body=rows[2].body.replace('"output_rows": 2', '"output_rows": 3'))
    found = World().findings(rows)
    assert (2, 3, "the row's hash is not that of its content: it was changed") in [
        (one.epoch and one.epoch + 1, one.row, one.what) for one in found
    ]


def test_a_row_that_is_missing_is_broken() -> None:
    rows = World().rows()
    del rows[3]
    assert any(one.what == "expected row 4 of the ledger, found row 5" for one in World().findings(rows))


@pytest.mark.parametrize(
    ("at", "values", "what"),
    [
        (3, {"entry": entry(1)}, "its offset goes back"),
        (3, {"entry": entry(3, table="other")}, "went from table source to table other"),
        (3, {"entry": entry(2)}, "though its offset has not moved"),
        (3, {"counts": {"s": {**ZERO, "read": 5, "folded": 3, "late": 1}}}, "but 0 filtered + 0 dead + 1 late + 3"),
        (3, {"watermark": 0}, "the watermark goes back"),
        (3, {"watermark_before": 7}, "the watermark before: 7"),
        (4, {"watermark": 9}, "`watermark` is not what the intent says"),
        (4, {"intent": "other"}, "the row names another intent"),
        (3, {"entry": "v1\n{}\n[1]"}, "the offsets cannot be compared"),
        (3, {"format": 99}, "unknown to this version"),
    ],
)
def test_an_epoch_that_does_not_follow_is_told(at: int, values: dict[str, Any], what: str) -> None:
    world = World()
    changed(world, at, **values)
    assert any(what in one.what for one in world.findings())


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ((3, 1, False), "its offset goes back"),
        ((2, 9, False), "its offset goes back"),
        ((4, -1, True), "its offset goes back"),
        ((3, 2, False), "though its offset has not moved"),
        ((3, 3, False), None),
        ((4, -1, False), None),
    ],
)
def test_an_offset_never_goes_back_within_a_version_either(other: tuple[int, int, bool], what: str | None) -> None:
    told = [said for _, said in _moved("s", Place("t", 3, 2, False), Place("t", *other), 5)]
    assert len(told) == (what is not None) and all(str(what) in said for said in told)


def without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda body: {key: value for key, value in body.items() if key != name}


def saying(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda body: {**body, **values}


FORGED: list[tuple[int, Callable[[dict[str, Any]], Any]]] = [
    (-1, lambda _: []),
    (-1, lambda _: None),
    (-1, lambda _: 5),
    (-1, saying(format="2")),
    (-1, saying(format=None)),
    *((at, change) for at in (0, 5) for change in (saying(entry=None), without("entry"))),
    (5, saying(counts=None)),
    (6, saying(counts=None)),
    (6, without("counts")),
    *((at, saying(tables=None)) for at in (0, 6)),
    *((at, saying(table_ids=None)) for at in (0, 6)),
    (6, saying(output_rows=None)),
]


@pytest.mark.parametrize(("at", "change"), FORGED)
def test_a_row_that_lacks_what_its_kind_has_is_broken(at: int, change: Callable[[dict[str, Any]], Any]) -> None:
    """Its hashes fit, as one would forge it who knows how."""
    world = World()
    kind, epoch, attempt, body = world.bodies[at]
    world.bodies[at] = (kind, epoch, attempt, change(body))
    assert worst(world.findings()) == "broken"


def test_a_seal_that_announces_nothing_is_broken() -> None:
    world = World()
    world.bodies.append(("seal", 3, 1, {}))
    assert [one.what for one in world.findings()] == ["the row cannot be read (KeyError: 'successor')"]
    app = APP.replace("g1-token", "g2-other")
    world.sink().append(LogEntry(4, ((app + "sink", 0),)))
    assert worst(world.findings()) == "broken"


def test_what_a_newer_version_has_written_is_unknown_and_said_with_its_first_row() -> None:
    world = World()
    for at in (-2, -1):
        changed(world, at, format=99)
    found = world.findings()
    assert worst(found) == "unknown"
    assert [one.row for one in found if "unknown to this version" in one.what] == [6]
    assert {one.what for one in found[1:]} == {"a commit of epoch 3 that the ledger does not name"}
    doubled(world)
    assert worst(world.findings()) == "broken"


def test_an_epoch_left_out_is_a_gap() -> None:
    world = World()
    del world.bodies[3:5]
    assert any("expected epoch 2, attempt 1, found epoch 3" in one.what for one in world.findings())


def test_an_open_epoch_may_have_written() -> None:
    world = World()
    intent = world.intend(4)
    world.write(f"sink/{SINK}", 4, intent, 2)
    assert world.findings() == []


def epoch_four(qos: int, result: str) -> World:
    """Epoch 4 is open, or lost, and has written to the sink."""
    world = World(qos=qos)
    intent = world.intend(4)
    world.write(f"sink/{SINK}", 4, intent, 2)
    if result == "lost":
        kept = {name: intent[name] for name in ("format", "entry", "watermark", "maxima", "counts")}
        world.bodies.append(("lost", 4, 1, {**kept, "intent": sha(intent), "lost": 5}))
    return world


@pytest.mark.parametrize(("qos", "result"), [(2, "open"), (1, "open"), (0, "lost")])
def test_what_the_ledger_does_not_name_stands_there_once_and_with_its_intent(qos: int, result: str) -> None:
    world = epoch_four(qos, result)
    assert world.findings() == []
    file = File("twice.parquet", 100, 2)
    world.sink().append(replace(world.sink()[4], version=5, added=(file,)))
    for files in (world.live, world.there):
        files[SINK][file.path] = file.size
    assert [(one.commit, one.what) for one in world.findings()] == [
        (5, f"{APP}sink records version {4 << 20} a second time")
    ]
    world = epoch_four(qos, result)
    world.sink()[4] = replace(world.sink()[4], metadata={**world.sink()[4].metadata, "intent": "another"})
    assert [one.what for one in world.findings()] == ["a commit of epoch 4 that the ledger does not name"]


def test_a_retry_is_one_intent_announced_twice() -> None:
    world = World(epochs=0)
    world.intend(1)
    world.fold(1)
    world.bodies[2] = ("intent", 1, 2, world.bodies[2][3])
    assert world.findings() == []
    assert Story(world.rows()).epochs[0].attempts == 2
    changed(world, 2, watermark=2)
    assert any("planned again" in one.what for one in world.findings())


@pytest.mark.parametrize("qos", [1, 2])
def test_only_at_qos_1_may_an_earlier_attempt_have_written_too(qos: int) -> None:
    world = World(qos=qos, epochs=0)
    world.intend(1)
    world.fold(1)
    world.bodies[2] = ("intent", 1, 2, world.bodies[2][3])
    file = File("again.parquet", 100, 2)
    again = replace(world.sink()[1], version=2, transactions=((APP + "sink", (1 << 20) + 2),), added=(file,))
    world.live[SINK] |= {file.path: file.size}
    world.there[SINK] |= {file.path: file.size}
    world.bodies[3][3]["tables"][f"sink/{SINK}"] |= {"commit": 2, "version": (1 << 20) + 2}
    world.sink().append(again)
    first = replace(world.sink()[1], transactions=((APP + "sink", (1 << 20) + 1),))
    world.sink()[1] = first
    assert worst(world.findings()) == ("proven" if qos == 1 else "broken")


@pytest.mark.parametrize(("qos", "attempts", "good"), [(0, 2, True), (0, 1, False), (1, 2, False), (2, 2, False)])
def test_what_a_first_attempt_has_committed_at_qos_0_is_not_named_by_a_later_one(
    qos: int, attempts: int, good: bool
) -> None:
    """The rule has qos 2: a retry finishes the epoch, and leaves out the sink of qos 0."""
    world = World(taking={"qos": qos}, epochs=0)
    world.intend(1)
    world.fold(1)
    world.bodies[2] = ("intent", 1, 2, world.bodies[2][3])
    if attempts == 1:
        del world.bodies[2]
    del world.bodies[-1][3]["tables"][f"sink/{SINK}"]
    assert worst(world.findings()) == ("proven" if good else "broken")


def test_a_lost_epoch_is_counted_and_only_at_qos_0() -> None:
    for qos, verdict in ((0, "proven"), (2, "broken")):
        world = World(qos=qos)
        intent = world.intend(4)
        kept = {name: intent[name] for name in ("format", "entry", "watermark", "maxima", "counts")}
        world.bodies.append(("lost", 4, 1, {**kept, "intent": sha(intent), "lost": 5}))
        assert worst(world.findings()) == verdict
        changed(world, -1, lost=4)
        assert any("4 rows count as lost, expected 5" in one.what for one in world.findings())


def test_other_peoples_commits_before_the_table_was_ours_and_without_rows_are_no_matter() -> None:
    world = World()
    world.sink()[0] = replace(world.sink()[0], owner=None, changes=True)
    world.sink()[1] = replace(world.sink()[1], owner=LEDGER)
    world.sink().append(LogEntry(4, operation="OPTIMIZE", changes=False))
    assert world.findings() == []


def pruned(owner: str | None, adopted: int | None = None) -> World:
    """Somebody's rows stand at version 1, where the log begins, and ours at 2; its end names the owner again."""
    world = World(epochs=1)
    ours = replace(world.sink()[1], version=2)
    world.logs[SINK] = [LogEntry(1, operation="WRITE", changes=True), ours, LogEntry(3, owner=LEDGER)]
    world.bodies[2][3]["tables"][f"sink/{SINK}"]["commit"] = 2
    world.base[SINK] = None if owner is None else Base(0, {}, owner)
    if adopted is not None:
        changed(world, 0, adopted={f"sink/{SINK}": adopted})
    return world


@pytest.mark.parametrize(
    ("world", "verdicts"),
    [
        (pruned(LEDGER), ["broken"]),
        (pruned(None), ["unknown"]),
        (pruned("somebody"), []),
        (pruned(None, adopted=2), []),
        (pruned(LEDGER, adopted=2), []),
    ],
)
def test_where_a_log_begins_later_it_is_the_tables_owner_there_that_counts(world: World, verdicts: list[str]) -> None:
    found = world.findings()
    assert [one.verdict for one in found] == verdicts, found
    assert all("is not this rule's" in one.what and one.commit == 1 for one in found)


def test_state_that_says_so_may_be_rewritten() -> None:
    world = World()
    log = world.logs[TABLES["state/s"]]
    log.append(LogEntry(4, metadata={"holds_from": 3}, operation="WRITE", changes=True))
    assert world.findings() == []
    log.append(LogEntry(5, operation="WRITE", changes=True))
    assert [(one.table, one.commit) for one in world.findings()] == [("state/s", 5)]


def test_state_of_an_older_version_may_have_been_rewritten_without_a_word() -> None:
    world = World()
    changed(world, 0, format=1)
    world.logs[TABLES["state/s"]].append(LogEntry(4, operation="WRITE", changes=True))
    assert [(one.verdict, one.table, one.commit) for one in world.findings()] == [("unknown", "state/s", 4)]


def test_a_table_that_is_gone_is_told_once() -> None:
    world = World()
    world.gone.add(SINK)
    assert [(one.what, one.epoch) for one in world.findings()] == [(f"there is no table at {SINK}{MOVED}", 1)]


def test_another_table_under_the_same_address_is_broken() -> None:
    world = World()
    changed(world, 0, table_ids={**dict.fromkeys(TABLES, "id"), f"sink/{SINK}": "was another"})
    assert [one.what for one in world.findings()] == ["the table has id id, the ledger has written to was another"]


@pytest.mark.parametrize(
    ("form", "attempt", "digest", "verdict"),
    [
        (1, 1, None, "proven"),
        (1, 2, None, "broken"),  # by code that announces an attempt with digests
        (1, 0, None, "broken"),
        (2, 1, None, "broken"),
        (1, 1, {**DIGEST, "low": "8"}, "broken"),
    ],
)
def test_only_a_commit_by_code_without_digests_may_name_none(
    form: int, attempt: int, digest: dict[str, Any] | None, verdict: str
) -> None:
    world = World(form=form)
    no_digest(world)
    said = {**world.sink()[2].metadata, "attempt": attempt, **({"digest": digest} if digest else {})}
    world.sink()[2] = replace(world.sink()[2], metadata=said)
    found = world.findings()
    assert worst(found) == verdict
    assert all("`digest` in the commit's metadata" in one.what and one.epoch == 2 for one in found), found


@pytest.mark.parametrize(("form", "undigested"), [(1, 2), (2, 0)])
def test_attempts_before_digests_are_those_that_their_rows_announce_without(form: int, undigested: int) -> None:
    world = World(epochs=0, form=form)
    intent = world.intend(1)
    announced = [world.bodies[0], *(("intent", 1, attempt, intent) for attempt in (1, 2))]
    if form == 1:
        announced.append(("intent", 1, 3, {**intent, "digests": {}}))  # again, by code that has them
    rows = [
        Row(seq, kind, 1, "token", epoch, attempt, "run", "at", json.dumps(body, separators=(",", ":")), "", "")
        for seq, (kind, epoch, attempt, body) in enumerate(announced, 1)
    ]
    story = Story(rows)
    assert (story.findings, story.epochs[0].undigested) == ([], undigested)


def test_digests_are_compared_exactly_but_for_sums() -> None:
    known = {"rows": 2, "high": "5", "low": "7", "floats": {"v": {"nulls": 0, "nans": 0, "sum": "1.0", "size": "1.0"}}}
    same = RowDigest(2, 5, 7, {"v": Sums(0, 0, 1.0 + 1e-12, 1.0)})
    assert list(differences(known, same)) == []
    assert list(differences(known, replace(same, low=8))) == ["another hash"]
    assert list(differences(known, replace(same, rows=3))) == ["2 rows, found 3"]
    assert list(differences(known, replace(same, floats={"v": Sums(0, 0, 1.1, 1.1)}))) == ["column v"]
    assert list(differences(known, replace(same, floats={}))) == ["column v"]


def with_dead(replays: int = 1, rejected: int = 1, moves: bool = False) -> World:
    """Epoch 1 has a dead row and `rejected` ones; each epoch after it reads one of them again."""
    world = World(epochs=0)
    for number in range(1, replays + 2):
        more = {"replay": {"upto": number - 1}} if number > 1 else {}
        counts = {"s": {**ZERO, "read": 1, "folded": 1} if more else {**ZERO, "read": 3, "folded": 2, "dead": 1}}
        intent = world.intend(number)
        intent |= {"counts": counts, "entry": entry(number + 1 if moves or not more else 2), **more}
        dead = 0 if more else 1 + rejected
        names = {f"sink/{SINK}": 2, "state/s": 1} | ({"dead": dead} if dead else {})
        tables = {name: world.write(name, number, intent, rows) for name, rows in names.items()}
        kept = {name: intent[name] for name in ("format", "entry", "watermark", "maxima", "counts")}
        body = {**kept, "intent": sha(intent), "tables": tables, "table_ids": {}, "output_rows": 2}
        if dead:
            body["rejected"] = {"s": rejected}
        world.bodies.append(("commit", number, 1, body))
    return world


def test_rejected_and_replayed_rows_are_proven() -> None:
    assert with_dead(replays=2).findings() == []


@pytest.mark.parametrize(
    ("world", "epoch", "what"),
    [
        (with_dead(replays=3), 4, "1 dead rows were read again, of 0 that were left"),
        (with_dead(replays=1, moves=True), 2, "its offset has moved in an epoch that read dead rows"),
        (with_dead(replays=0, rejected=3), 1, "more rows were rejected than had been folded"),
    ],
    ids=["twice", "moved", "rejected"],
)
def test_faults_of_rejected_and_replayed_rows(world: World, epoch: int, what: str) -> None:
    assert (epoch, what) in [(one.epoch, one.what.partition(": ")[2]) for one in world.findings()]


def test_rejected_rows_must_be_in_the_dead_table() -> None:
    world = with_dead(replays=0)
    del world.bodies[-1][3]["rejected"]
    assert "the epoch has 1 rows for it, the ledger names a commit of 2" in [one.what for one in world.findings()]


def test_a_table_that_the_ledger_names_and_never_introduced() -> None:
    world = World()
    world.bodies[0][3]["table_ids"].pop("state/s")
    story = Story(world.rows())
    known = {address: TableLog(address, "id", tuple(log)) for address, log in world.logs.items()
             if address != TABLES["state/s"]}  # fmt: skip
    effects = Effects(story, LEDGER, HOME, known)
    effects.check()
    assert any(
        "never said which table" in finding.what and finding.verdict == "broken" for finding in effects.notes.findings
    )


def with_backfill(**changed: Any) -> World:
    """After epoch 3, what epochs up to 2 have read is put into the sink anew: three rows for two, two stay."""
    world = World()
    counts = {"s": {**ZERO, "read": 6, "folded": 5, "dead": 1}}
    results = {"rows": 3, "high": "1", "low": "2", "floats": {}}
    intent = {"format": 4, "number": 1, "begin": 0, "end": 60, "high": 60, "upto": 2, "entry": entry(3), "column": "at",
              "shift": 0, "counts": counts, "restated": {"s": 2}, "results": results, "rule": world.rule}  # fmt: skip
    intent |= changed
    world.bodies.append(("backfill", 3, 1, intent))
    version, digest = (3 << 20) + (1 << 19) + 1, {**DIGEST, "rows": 5}
    said = {"app": APP + "sink", "version": version, "epoch": 3, "backfill": 1, "intent": sha(intent), "rows": 3,
            "inserted": 3, "updated": 0, "deleted": 2, "copied": 2, "digest": digest, "results": results}  # fmt: skip
    file, went = File("backfill.parquet", 100, 5), tuple(world.sink()[at].added[0] for at in (1, 2))
    world.sink().append(LogEntry(4, ((said["app"], version),), said, "STREAMING UPDATE", (file,), went, changes=True))
    for files in (world.live, world.there):
        files[SINK][file.path] = file.size
    for one in went:
        del world.live[SINK][one.path]
    written = {"version": version, "commit": 4, "rows": 3, "digest": digest, "results": results}
    body = {"format": 4, "number": 1, "intent": sha(intent), "tables": {f"sink/{SINK}": written},
            "removed": {f"sink/{SINK}": 2}}  # fmt: skip
    world.bodies.append(("backfilled", 3, 1, body))
    return world


def test_a_backfill_is_proven_open_or_done_and_epochs_go_on_after_it() -> None:
    world = with_backfill()
    world.fold(4)
    assert world.findings() == []
    opened = with_backfill()
    opened.bodies.pop()
    assert opened.findings() == []
    opened.bodies.append(("backfill", 3, 2, opened.bodies[-1][3]))
    assert opened.findings() == []


def test_late_rows_that_an_expectation_drops_today_are_restated_all_the_same() -> None:
    """The ledger counts the late rows of the interval; those that are dropped are among them, and not folded."""
    dropping, failed = with_backfill(), {"few": {"failed": 5, "taken": 5}}
    rule = json.loads(dropping.rule)
    rule["streams"]["s"]["expect"] = {"few": {"check": "n < 9", "on_fail": "drop"}}
    counts = {"s": {**ZERO, "read": 6, "dropped": 5, "dead": 1, "expected": failed}}
    assert with_backfill(rule=json.dumps(rule), counts=counts).findings() == []
    more = with_backfill(rule=json.dumps(rule), counts=counts, restated={"s": 6}).findings()
    assert any("6 late rows were restated, more than" in finding.what for finding in more)


def late_rows_doubted(world: World) -> bool:
    return any("late rows were restated, more than" in finding.what for finding in world.findings())


LEFT = {"s": {**ZERO, "read": 1, "folded": 1}}  # of the late rows one is there


@pytest.mark.parametrize("how", ["a correction", "passed over"])
def test_late_rows_may_have_left_a_source_that_was_rewritten(how: str) -> None:
    """Ledgers count all that are in the late table."""
    assert late_rows_doubted(with_backfill(counts=LEFT))
    since, upto = (entry(at).split("\n")[2] for at in (3, 4))
    followed = {"since": since, "upto": upto, "commits": ["version 3"], "left": DIGEST, "came": DIGEST}
    for late, doubted in ((2, False), (3, True)):
        rewrites = {"s": followed} if how == "a correction" else {}
        world = with_backfill(counts=LEFT, restated={"s": late}, rewrites=rewrites, maxima={"s": 9})
        if how == "passed over":
            next(body for kind, _, _, body in world.bodies if kind == "intent")["skipped"] = {"s": ["version 1"]}
        assert late_rows_doubted(world) is doubted


def test_a_backfill_is_held_to_what_each_sink_takes_of_its_results() -> None:
    took = {f"sink/{SINK}": {"rows": 3, "high": "1", "low": "2", "floats": {}}}
    all_of_it = {"rows": 7, "high": "5", "low": "6", "floats": {}}
    assert with_backfill(results=all_of_it, taken=took).findings() == []
    assert with_backfill(results=all_of_it).findings() != []
    assert with_backfill(taken={f"sink/{SINK}": all_of_it}).findings() != []
    unread = with_backfill(results=all_of_it, taken={f"sink/{SINK}": {"rows": 3}}).findings()
    assert unread[0].what == "the row cannot be read (KeyError: 'high')"


def test_a_backfill_of_everything_leaves_no_older_file() -> None:
    """The file of epoch 3 is not among those that its commit removes."""
    [found] = with_backfill(whole=True).findings()
    assert found.what == "backfill 1 replaces all rows, but the commit leaves 1 files"
    unread = with_backfill(whole="yes").findings()
    assert unread[0].what.startswith("the row cannot be read (TypeError: expected true or false for `whole`")


def ledger_without_it(world: World) -> None:
    del world.bodies[-2:]


def log_without_it(world: World) -> None:
    world.sink().pop()


def twice(world: World) -> None:
    world.sink().append(replace(world.sink()[-1], version=5))


def fewer_rows(world: World) -> None:
    world.sink()[-1] = replace(world.sink()[-1], added=(File("backfill.parquet", 100, 3),))


def others_went(world: World) -> None:
    world.sink()[-1] = replace(world.sink()[-1], metadata={**world.sink()[-1].metadata, "deleted": 3})


def other_results(world: World) -> None:
    body = world.bodies[-1][3]
    body["tables"][f"sink/{SINK}"] = {**body["tables"][f"sink/{SINK}"], "results": {**DIGEST, "rows": 3}}


def no_sink(world: World) -> None:
    world.bodies[-1][3]["tables"] = {}


def an_epoch_between(world: World) -> None:
    end = world.bodies.pop()
    world.fold(4)
    world.bodies.append(end)


def end_without_intent(world: World) -> None:
    del world.bodies[-2]


def untouched(world: World) -> None:
    """The fault is in the intent."""


OF_BACKFILLS: list[tuple[Callable[[World], None], dict[str, Any], str]] = [
    (ledger_without_it, {}, "a commit of backfill 1 that the ledger does not name"),
    (log_without_it, {}, "the ledger names commit 4, the log ends at 3"),
    (twice, {}, "a commit of backfill 1 once more: the ledger names commit 4"),
    (fewer_rows, {}, "its files have 3 rows, the digest of what was written is of 5"),
    (others_went, {}, "the ledger says 2 rows were removed, the commit 3"),
    (other_results, {}, "its results are not those of the intent of backfill 1"),
    (no_sink, {}, "backfill 1 names none of it"),
    (an_epoch_between, {}, "a row (intent) while backfill 1 was open"),
    (end_without_intent, {}, "the end of a backfill without its intent"),
    (untouched, {"number": 2}, "expected backfill 1, attempt 1, found backfill 2, attempt 1"),
    (untouched, {"upto": 4}, "backfill 1: it claims to have read as of epoch 4, but follows epoch 3"),
    (untouched, {"entry": entry(4)}, "backfill 1: its sources are not where epoch 2 ended"),
    (
        untouched,
        {"restated": {"s": 3}},
        "backfill 1: stream s: 3 late rows were restated, more than",
    ),
    (
        untouched,
        {"counts": {"s": {**ZERO, "read": 6, "folded": 5}}},
        "6 rows were read, but 0 filtered + 0 dead",
    ),
]


@pytest.mark.parametrize(("plant", "changed", "what"), OF_BACKFILLS, ids=[what for *_, what in OF_BACKFILLS])
def test_a_planted_fault_of_a_backfill_is_broken(
    plant: Callable[[World], None], changed: dict[str, Any], what: str
) -> None:
    world = with_backfill(**changed)
    plant(world)
    found = world.findings()
    assert worst(found) == "broken"
    assert any(what in one.what for one in found), found


@pytest.mark.parametrize("forged", ["2", 2.0, True, None])
def test_a_number_that_is_none_is_a_fault_of_its_row(forged: Any) -> None:
    """In rows that are chained anew: what is counted with them later does not fail."""
    world = World()
    changed(world, -1, output_rows=forged)
    assert any("expected a whole number, found" in one.what and one.row == 7 for one in world.findings())
    world = World()
    changed(world, 5, counts={"s": {**ZERO, "read": forged}})
    assert any("expected a whole number, found" in one.what and one.row == 6 for one in world.findings())


def test_cells_of_another_type_are_told_before_anything_is_computed_of_them() -> None:
    rows = World().rows()
    assert list(misshapen(rows)) == []
    (found,) = misshapen([rows[0], replace(rows[1], at=b"at")])  # type: ignore[arg-type]
    assert (found.verdict, found.row) == ("broken", 2)
    assert found.what == "1 rows of the ledger, of 2, have in `at` no str, such as row 2, which has bytes"


def epoch_of(number: int, before: str, after: str, result: str = "committed", kind: str = "fake") -> Any:
    """An epoch of a stream whose offsets are texts."""
    rule = {"streams": {"s": {"kind": kind}}}
    entries = ({"entry": f"v1\n{{}}\n{line}"} for line in (before, after))
    return SimpleNamespace(generation=1, number=number, rule=rule, result=result,
                           **dict(zip(("before", "intent"), entries, strict=True)))  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ("0 1 2 3", []),
        ("0 1 1 2", []),  # a tick, or a replay
        ("0 1 0", ["stream s: its offset goes back, from 1 to 0"]),
        ("0 1 2 1 3", ["stream s: its offset goes back, from 2 to 1"]),
    ],
)
def test_an_offset_of_any_kind_that_comes_again_is_told(ends: str, told: list[str]) -> None:
    epochs = [epoch_of(number, *pair) for number, pair in enumerate(pairwise(ends.split()), 1)]
    assert [one.what for one in repeated_offsets(cast(Any, SimpleNamespace(epochs=epochs)))] == told


def test_an_epoch_that_was_abandoned_gives_its_offset_back() -> None:
    epochs = [epoch_of(1, "0", "1", "abandoned"), epoch_of(2, "0", "1"), epoch_of(3, "1", "2")]
    assert not [*repeated_offsets(cast(Any, SimpleNamespace(epochs=epochs)))]


def test_rows_without_a_move_are_told_of_any_kind() -> None:
    assert ["5 rows were read though its offset has not moved" in said for _, said in _moved("s", "1", "1", 5)] == [
        True
    ]
    assert not [*_moved("s", "1", "2", 5)]
