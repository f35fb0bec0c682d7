"""The auditor on an epoch that was taken back: proven as it is, broken once the undo, or the ledger, says otherwise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import Schema
from support.audited import COLUMNS, TOKEN, Made

EPOCH, UNDONE = 4, (4 << 20) + (1 << 19)


class Abandoned(Made):
    """Three epochs and a fourth, which has written to the sink and to `late`, and was taken back.

    `says`: what the row that ends it says; `does`: the actions of the undo; `stage`: how far it is.
    """

    def __init__(
        self,
        root: Path,
        stage: str = "abandoned",
        says: Callable[[dict[str, Any]], None] = lambda body: None,
        does: Callable[[list[dict[str, Any]]], None] = lambda actions: None,
    ):
        super().__init__(root, 3)
        name = f"sink/{self.sink}"
        body = json.loads(self.rows[-2].body)
        before = json.loads(self.rows[-1].body)
        intent = {**body, "format": 8, "entry": self._entry(EPOCH), "watermark": EPOCH, "watermark_before": 3}
        self.put("intent", EPOCH, intent)
        hashed = hashlib.sha256(json.dumps(intent).encode()).hexdigest()
        data = (self.sink / "3.parquet").read_bytes()
        found = json.loads(self.rows[-2].body)["tables"][name]["digest"]
        for table in (name, "late"):
            self._write(table, EPOCH, hashed, data, found)
        self.put("abandoning", EPOCH, {"format": 8, "intent": hashed})
        if stage == "abandoning":
            return self.save()
        self.undo(name, hashed, len(data), does)
        if stage == "undone":
            return self.save()
        ends = {"format": 8, "intent": hashed, "lost_epochs": [EPOCH]}
        ends |= {key: before[key] for key in ("entry", "watermark", "maxima")}
        ends["tables"] = {name: {"version": UNDONE, "commit": 5, "undoes": [4]}}
        says(ends)
        self.put("abandoned", EPOCH, ends)
        return self.save()

    def undo(self, name: str, intent: str, size: int, does: Callable[[list[dict[str, Any]]], None]) -> None:
        app = self.app(name)
        told = {"app": app, "version": UNDONE, "epoch": EPOCH, "intent": intent, "undoes": [4]}
        gone = {"path": "4.parquet", "size": size, "partitionValues": {}, "dataChange": True, "deletionTimestamp": 0,
                "extendedFileMetadata": True, "stats": '{"numRecords":2}'}  # fmt: skip
        actions = [
            {"commitInfo": {"operation": "WRITE", "timestamp": 0, "userMetadata": json.dumps(told)}},
            {"txn": {"appId": app, "version": UNDONE, "lastUpdated": 0}},
            {"remove": gone},
        ]
        does(actions)
        self.log(name, 5).write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("stage", ["abandoning", "undone", "abandoned"])
def test_what_was_taken_back_is_proven_at_each_stage(tmp_path: Path, stage: str, deep: bool) -> None:
    assert Abandoned(tmp_path, stage).verdicts(deep) == []


def other_file(actions: list[dict[str, Any]]) -> None:
    actions[-1]["remove"]["path"] = "3.parquet"


def one_file_more(actions: list[dict[str, Any]]) -> None:
    actions.append({"remove": {**actions[-1]["remove"], "path": "2.parquet"}})


def no_file(actions: list[dict[str, Any]]) -> None:
    actions.pop()


def put_back(actions: list[dict[str, Any]]) -> None:
    stats = {"modificationTime": 0, "dataChange": True, "stats": '{"numRecords":2}', "partitionValues": {}}
    actions.append({"add": {"path": "3.parquet", "size": actions[-1]["remove"]["size"], **stats}})


def no_transaction(actions: list[dict[str, Any]]) -> None:
    del actions[1]


def other_commits(actions: list[dict[str, Any]]) -> None:
    info = actions[0]["commitInfo"]
    info["userMetadata"] = json.dumps({**json.loads(info["userMetadata"]), "undoes": [3]})


@pytest.mark.parametrize("does", [other_file, one_file_more, no_file, put_back, no_transaction, other_commits])
@pytest.mark.parametrize("stage", ["undone", "abandoned"])
def test_an_undo_of_anything_else_is_broken(tmp_path: Path, stage: str, does: Any) -> None:
    assert "broken" in {verdict for verdict, _ in Abandoned(tmp_path, stage, does=does).verdicts()}


def moved(self: dict[str, Any]) -> None:
    self["entry"] = Made._entry(EPOCH)


def further(body: dict[str, Any]) -> None:
    body["watermark"] = EPOCH


def unnamed(body: dict[str, Any]) -> None:
    body["tables"] = {}


def names_nothing(body: dict[str, Any]) -> None:
    next(iter(body["tables"].values()))["undoes"] = []


def other_version(body: dict[str, Any]) -> None:
    next(iter(body["tables"].values()))["version"] = UNDONE + 1


def other_intent(body: dict[str, Any]) -> None:
    body["intent"] = "0" * 64


@pytest.mark.parametrize("says", [moved, further, unnamed, names_nothing, other_version, other_intent])
def test_a_row_that_says_anything_else_is_broken(tmp_path: Path, says: Any) -> None:
    assert "broken" in {verdict for verdict, _ in Abandoned(tmp_path, says=says).verdicts()}


def test_an_attempt_that_wrote_after_the_undo_is_broken(tmp_path: Path) -> None:
    made = Abandoned(tmp_path)
    name = f"sink/{made.sink}"
    late = json.loads(made.log(name, 4).read_text().split("\n")[0])["commitInfo"]["userMetadata"]
    made.log(name, 6).write_text(
        "\n".join(
            [
                json.dumps({"commitInfo": {"operation": "WRITE", "timestamp": 0, "userMetadata": late}}),
                json.dumps({"txn": {"appId": made.app(name), "version": EPOCH << 20, "lastUpdated": 0}}),
                json.dumps(
                    {
                        "add": {
                            "path": "3.parquet",
                            "size": 1,
                            "partitionValues": {},
                            "modificationTime": 0,
                            "dataChange": True,
                            "stats": '{"numRecords":2}',
                        }
                    }
                ),
            ]
        )
    )
    assert any("of epoch 4 that the ledger does not name" in what for _, what in made.verdicts())


def test_an_undo_that_nothing_announced_is_broken(tmp_path: Path) -> None:
    made = Made(tmp_path, 3)
    Abandoned.undo(made, f"sink/{made.sink}", "intent", 1, lambda actions: None)  # type: ignore[arg-type]
    assert "broken" in {verdict for verdict, _ in made.verdicts()}


@pytest.mark.parametrize("kind", ["intent", "commit", "lost", "abandoning"])
def test_an_announced_epoch_with_another_end_is_broken(tmp_path: Path, kind: str) -> None:
    made = Abandoned(tmp_path, "abandoning")
    made.put(kind, EPOCH, json.loads(made.rows[-2].body))
    made.save()
    assert any("which was to be abandoned" in what for _, what in made.verdicts())


@pytest.mark.parametrize("address", ["lake/added", "file:///elsewhere/lake/added", "linked/added", "other/name"])
def test_an_added_sink_that_only_this_epoch_wrote_is_known_by_any_spelling(tmp_path: Path, address: str) -> None:
    made = Added(tmp_path, address)
    assert made.verdicts() == []


def test_an_added_sink_without_an_undo_is_broken(tmp_path: Path) -> None:
    made = Added(tmp_path, "lake/added", names=False)
    assert [verdict for verdict, what in made.verdicts() if "names no commit that keeps it" in what] == ["broken"]


@pytest.mark.parametrize(("of", "verdicts"), [("removed", []), ("same", ["broken"]), (None, ["broken"])])
def test_an_undo_is_looked_for_in_the_table_that_the_sink_was_then(
    tmp_path: Path, of: str | None, verdicts: list[str]
) -> None:
    """The user has removed the sink's table; the next epoch has made another, and has no rows for it."""
    place = tmp_path / "lake" / "added"
    id_ = Made._table(place, Schema.from_json(COLUMNS), {})
    made = Added(tmp_path, "lake/added", of=id_ if of == "same" else of)
    made.idle(EPOCH + 1, {f"sink/{place}": id_})
    assert [verdict for verdict, _ in made.verdicts()] == verdicts


class Added(Abandoned):
    """The abandoned epoch's rule has one more sink, which no other epoch has written.

    `names`: its undo is recorded; `of`: in which table, where the row says so.
    """

    def __init__(self, root: Path, address: str, names: bool = True, of: str | None = None):
        self._address, table = address, f"sink/{root / 'lake' / 'added'}"
        of_table = {} if of is None else {"table_id": of}
        more = {table: {"version": UNDONE, "commit": 1, "undoes": [], **of_table}} if names else {}
        super().__init__(root, says=lambda body: body["tables"].update(more))

    def idle(self, number: int, ids: dict[str, str]) -> None:
        """One more epoch, which has read nothing, and made these tables."""
        counts = {"s": dict.fromkeys(("read", "filtered", "dead", "late", "folded"), 0)}
        kept = {"format": 2, "entry": self._entry(3), "watermark": 3, "maxima": {}, "counts": counts}
        intent = {**kept, "watermark_before": 3, "rule": self.rule}
        self.put("intent", number, intent)
        hashed = hashlib.sha256(json.dumps(intent).encode()).hexdigest()
        self.put("commit", number, {**kept, "intent": hashed, "tables": {}, "table_ids": ids, "output_rows": 0})
        self.save()

    def put(self, kind: str, epoch: int, body: dict[str, Any], generation: int = 1, token: str = TOKEN) -> None:
        if kind == "intent" and epoch == EPOCH:
            rule = json.loads(body["rule"])
            rule["sinks"].append({"kind": "delta", "address": self._address, "qos": 2})
            body["rule"] = json.dumps(rule)
        super().put(kind, epoch, body, generation, token)
