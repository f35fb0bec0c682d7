"""A rule with one target whose home is made by hand and without Spark: the relay finds what epochs would have left."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from floodmark.audit.certificate import Certificate, audit
from floodmark.audit.content.rowhash import digest
from floodmark.connectors.relay.holding import held_by
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Backfill, Backfilled
from floodmark.core.protocol.records.rows import Commit, Counts, Seal, Written
from floodmark.core.protocol.recovery import ATTEMPTS
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.ledger.delta import tables
from floodmark.ledger.ledger import Ledger
from support.byhand import commit, intent, offset
from support.flow import SCHEMA, Flow, event
from support.relays import Relays

FIELDS = {"at": "timestamp", "k": "string", "v": "double", "n": "long"}
COLUMNS = ("at", "k", "v", "n")


class Outboxed:
    """`sink`: as in the rule file. `env`: the connections."""

    def __init__(self, root: Path, sink: Mapping[str, Any], env: Mapping[str, str] | None = None):
        self.flow = Flow(root, "refused", sql="SELECT at, k, v, n FROM events", stream={"lateness": None})
        self.flow.settings = {"sinks": [sink]}
        self.flow.arrive([event(1)])
        self.flow.write_rule()
        self.env = env or {}
        [self.sink] = self.flow.rule().sinks
        self.outbox = str(self.flow.place.outbox(self.sink))
        self.ledger = Ledger.open(self.flow.place.ledger, "by hand")
        marks = {DELETE_COLUMN: "boolean"} if self.sink.key else {}
        fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (FIELDS | marks).items()]
        tables.create(self.outbox, json.dumps({"type": "struct", "fields": fields}), {tables.OWNER: self.ledger.id})
        self._version = 0
        self.begin()

    @property
    def name(self) -> str:
        return f"sink/{self.sink.address}"

    @property
    def relays(self) -> Relays:
        return Relays(self.flow.name, self.flow.root, self.env)

    def begin(self, has: bool = True) -> None:
        """A generation. `has`: whether the rule has the sink then."""
        number = self.ledger.head.generation + 1 if self.ledger.head else 1
        if number > 1:
            self.ledger.seal(Seal(why="reset", successor=number, token=f"t{number}", keep_output=False, discarded=None))
        table = tables.open_table(self.outbox)
        assert table is not None
        first = Commit(
            entry=Entry(0, (offset(self.flow, 0),)).text(), watermark=None, maxima={"events": None}, columns={},
            rule=self.flow.rule().to_json(), table_ids={self.name: tables.table_id(table)} if has else {},
        )  # fmt: skip
        self.ledger.begin(number, f"t{number}", first)

    def epoch(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows that an epoch has for the target; with a key also `DELETE_COLUMN`, if a row takes its key's row away.

        `k` may be bytes: text that is not UTF-8.
        """
        assert self.ledger.head is not None
        number, self._version = self.ledger.head.epoch + 1, self._version + 1
        written = self._written(number, rows)
        self.flow.arrive([event(1)])
        meant = intent(self.flow, self._version, None, 0, Counts(read=1, folded=1))
        self.ledger.intend(meant)
        self.ledger.commit(commit(meant, output=len(rows)).model_copy(update={"tables": {self.name: written}}))

    def correct(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The rows of a correction by key, after the newest epoch."""
        head = self.ledger.begun
        written = self._written(head.epoch, rows)
        said = written.model_dump()["digest"]
        meant = Backfill(
            begin=0, end=0, high=0, upto=head.epoch, number=len(head.backfills) + 1, entry=head.entry.text(), column="",
            shift=0, counts={}, restated={}, digests={}, results=said, rule=self.flow.rule().to_json(), rule_hash="x",
            keys={self.name: len(rows)},
        )  # fmt: skip
        self.ledger.start_backfill(meant)
        done = Backfilled(number=meant.number, intent=meant.digest, tables={self.name: written}, removed={})
        self.ledger.end_backfill(done)

    def _written(self, epoch: int, rows: Sequence[Mapping[str, Any]]) -> Written:
        """What a commit has left in the outbox, which now has the rows."""
        plain = pa.table({field.name: _array([row[field.name] for row in rows], field.type) for field in SCHEMA})
        found = plain
        if self.sink.key:
            found = plain.append_column(DELETE_COLUMN, pa.array([bool(row.get(DELETE_COLUMN)) for row in rows]))
        write_deltalake(self.outbox, found, mode="append", schema_mode="merge")
        added = digest(plain, computed=True)
        said = {"rows": added.rows, "high": str(added.high), "low": str(added.low), "floats": {}}
        written = Written(
            version=epoch * ATTEMPTS, commit=DeltaTable(self.outbox).version(), rows=len(rows), digest=None
        )
        return Written.model_validate({**written.model_dump(), "digest": said})

    def undelivered(self) -> list[tuple[Any, ...]]:
        """The rows that the target refused: portion, number, and the column `n`."""
        folder = self.outbox.replace("/outbox/", "/undelivered/")
        if not Path(folder).exists():
            return []
        rows = DeltaTable(folder).to_pyarrow_table(columns=["_seq", "_number", "n"]).to_pylist()
        return sorted((row["_seq"], row["_number"], row["n"]) for row in rows)

    def certified(self) -> tuple[list[str], dict[str, int]]:
        """What the certificate has against the target, and how many rows it lacks."""
        found = audit(self.flow.name, self.flow.home, deep=True, targets=partial(held_by, self.flow.place))
        assert isinstance(found, Certificate)
        return [one.what for one in found.findings if one.table == self.name and _of_rows(one.what)], found.undelivered

    def command(self, *arguments: str) -> tuple[int, str]:
        folders = ["--rules", str(self.flow.root / "rules"), "--home", str(self.flow.home)]
        done = self.relays.command(*arguments, *folders)
        return done.code, done.said


def redone(root: Path, sink: Mapping[str, Any], env: Mapping[str, str] | None = None) -> None:
    """A relay is killed between the rows (1 and 2 in column `n`) and the position, or the other way about, and called
    again. The rule has run with the `qos` of the sink: a later edit of it would not count."""
    rule = Outboxed(root, sink, env)
    rule.epoch([event(1, "a", n=1), event(2, "b", n=2)])
    rule.relays.killed_at("relay.between")
    assert rule.relays.ship().code == 0


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind != pa.string():
        return pa.array(values, kind)
    raw = [one.encode() if isinstance(one, str) else one for one in values]
    return pa.array(raw, pa.binary()).view(kind)


def _of_rows(said: str) -> bool:
    """Of the target's rows: the hand-made ledger lacks what Spark leaves in an outbox's log."""
    return any(
        words in said
        for words in ("it holds", "it lacks", "it got", "it refused", "cannot be compared", "cannot be asked")
    )
