"""Read the ledger's rows in order, as generations with their epochs and backfills."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from floodmark.audit.evidence import Finding, Row
from floodmark.audit.ledger.chain import NEWEST_FORMAT, broken, intent_hash, lacks_digests, sha
from floodmark.audit.ledger.deferrals import Deferral
from floodmark.audit.ledger.forgets import follow
from floodmark.audit.ledger.generations import Backfill, Epoch, Generation
from floodmark.audit.ledger.shapes import (
    check_backfill,
    check_counts,
    check_deferred,
    check_entry,
    check_rule,
    check_tables,
    check_undone,
    check_written,
    places,
    sinks_back,
    whole,
)


class Story:
    """The ledger's rows, in order. `findings`: rows that do not follow from those before them.

    `dropped`: tables, by id, that a row drops, with that row; `moved`: later addresses of tables. `beyond`: there are
    rows that are not read: of an unknown format and those after it, or ones that came while the tables were read.
    """

    def __init__(self, rows: Sequence[Row]):
        self.generations: list[Generation] = []
        self.findings: list[Finding] = []
        self.dropped: dict[str, Row] = {}  # id of a table → the row that drops it
        self.moved: Mapping[str, str] = {}  # id of a table → its address, by the newest row that records one
        self.beyond = False
        self._retired = self._dropping = self._failed = False
        for row in rows:
            if not self.beyond:
                self._take(row)

    @property
    def epochs(self) -> list[Epoch]:
        return [epoch for generation in self.generations for epoch in generation.epochs]

    def _take(self, row: Row) -> None:
        try:
            body = json.loads(row.body)
        except ValueError:
            return self._fault(row, "the row's body is no JSON")
        if not isinstance(body, dict) or type(body.get("format", 0)) is not int:
            return self._fault(row, "the row's body is not an object with the number of a format")
        if body.get("format", 0) > NEWEST_FORMAT:
            what = f"the row has format {body['format']}, unknown to this version: audit with a newer Floodmark"
            self.findings.append(Finding("unknown", what, row.generation, row.epoch, row=row.seq))
            self.beyond = True
            return None
        try:
            self._follow(row, body)
        except (AttributeError, KeyError, TypeError, ValueError) as fault:
            self._fault(row, f"the row cannot be read ({type(fault).__name__}: {fault})")
        return None

    def _fault(self, row: Row, what: str) -> None:
        self.findings.append(broken(row, what))

    def _faults(self, row: Row, whats: Iterable[str]) -> None:
        self.findings += [broken(row, what) for what in whats]

    def _follow(self, row: Row, body: Mapping[str, Any]) -> None:
        if self._retired and row.kind != "life":
            self._fault(row, f"a {row.kind} of a rule that was retired")
        if row.kind == "commit" and row.epoch == 0:
            self._begin(row, body)
        elif not self.generations or self._now.number != row.generation or self._now.token != row.token:
            self._fault(row, f"a {row.kind} of a generation that never began")
        elif row.kind == "life":
            self._live(row, body)
        elif self._now.seal is not None:
            self._fault(row, f"a {row.kind} after the generation was sealed")
        else:
            self._followed(row, body)

    def _followed(self, row: Row, body: Mapping[str, Any]) -> None:
        if self._failed and row.kind not in ("seal", "abandoning"):
            self._fault(row, f"a {row.kind} after a failed check, without a decision about it")
        if self._now.is_forgetting and row.kind != "seal":
            self._fault(row, f"a row ({row.kind}) while forget {len(self._now.forgets)} was open")
        between = row.kind in ("backfill", "backfilled", "deferred")
        if self._filling is not None and row.kind not in ("backfill", "backfilled", "seal"):
            self._fault(row, f"a row ({row.kind}) while backfill {self._filling.number} was open")
        if between and (self._open is not None or row.epoch != len(self._now.epochs)):
            self._fault(row, f"a row ({row.kind}) that is not between epoch {row.epoch} and the next")
        if self._open is not None and self._open.abandoning and row.kind not in ("abandoned", "seal"):
            self._fault(row, f"a {row.kind} of epoch {row.epoch}, which was to be abandoned")
        {
            "intent": self._intend,
            "commit": self._end,
            "lost": self._end,
            "abandoning": self._abandon,
            "abandoned": self._abandoned,
            "seal": self._seal,
            "backfill": self._fill,
            "backfilled": self._filled,
            "deferred": self._defer,
        }[row.kind](row, body)

    @property
    def _now(self) -> Generation:
        return self.generations[-1]

    @property
    def _open(self) -> Epoch | None:
        epochs = self._now.epochs
        return epochs[-1] if epochs and epochs[-1].result == "open" else None

    @property
    def _is_open(self) -> bool:
        return self._open is not None or self._filling is not None

    @property
    def _filling(self) -> Backfill | None:
        backfills = self._now.backfills
        return backfills[-1] if backfills and backfills[-1].result == "open" else None

    def _begin(self, row: Row, body: Mapping[str, Any]) -> None:
        seal = self._now.seal if self.generations else None
        if self.generations and seal is None:
            self._fault(row, "a generation begins though the one before it was not sealed")
        if seal is not None and (seal["successor"], seal["token"]) != (row.generation, row.token):
            self._fault(row, "a generation begins that no seal announced")
        check_tables(body)
        self.generations.append(Generation(row.generation, row.token, body))

    def _intend(self, row: Row, body: Mapping[str, Any]) -> None:
        again, number = self._open, len(self._now.epochs) + 1
        if again is not None:
            self._intend_again(row, body, again)
            return
        if row.epoch != number or row.attempt != 1:
            self._fault(row, f"expected epoch {number}, attempt 1, found epoch {row.epoch}, attempt {row.attempt}")
        before = self._now.last
        check_rule(body)
        epoch = Epoch(row.generation, row.epoch, body, intent_hash(row, body), row.attempt, self.moved, before=before)
        epoch.undigested = row.attempt if lacks_digests(body) else 0
        self._now.epochs.append(epoch)
        if body["watermark_before"] != before["watermark"]:
            self._fault(row, f"the watermark before: {body['watermark_before']}, the ledger had {before['watermark']}")
        if sinks_back(before["watermark"], body["watermark"]):
            self._fault(row, f"the watermark goes back, from {before['watermark']} to {body['watermark']}")

    def _intend_again(self, row: Row, body: Mapping[str, Any], epoch: Epoch) -> None:
        if (row.epoch, row.attempt) != (epoch.number, epoch.attempts + 1):
            self._fault(row, f"expected epoch {epoch.number}, attempt {epoch.attempts + 1}, found epoch {row.epoch}, "
                        f"attempt {row.attempt}")  # fmt: skip
        if intent_hash(row, body) != epoch.intent_hash:
            self._fault(row, "the epoch was planned again while its intent was open")
        epoch.attempts = row.attempt
        if lacks_digests(body):
            epoch.undigested = row.attempt

    def _end(self, row: Row, body: Mapping[str, Any]) -> None:
        epoch = self._open
        if epoch is None or row.epoch != epoch.number:
            self._fault(row, f"a {row.kind} of epoch {row.epoch} without its intent")
            return
        if row.kind == "commit":
            check_tables(body)
            check_counts(body)
        _ = whole(body["lost"]) if row.kind == "lost" else None
        epoch.result, epoch.end = {"commit": "committed", "lost": "lost"}[row.kind], body
        if body["intent"] != epoch.intent_hash:
            self._fault(row, "the row names another intent than the epoch's")
        for name in ("entry", "watermark", "maxima", "counts"):
            if body[name] != epoch.intent[name]:
                self._fault(row, f"`{name}` is not what the intent says")

    def _abandon(self, row: Row, body: Mapping[str, Any]) -> None:
        epoch = self._open
        if epoch is None or row.epoch != epoch.number or body["intent"] != epoch.intent_hash:
            return self._fault(row, f"epoch {row.epoch} is to be abandoned, and is not open")
        epoch.abandoning, self._failed = True, False
        return None

    def _abandoned(self, row: Row, body: Mapping[str, Any]) -> None:
        """The epoch has no effect: the rule has its status of before the epoch."""
        epoch = self._open
        if epoch is None or not epoch.abandoning or (row.epoch, body["intent"]) != (epoch.number, epoch.intent_hash):
            return self._fault(row, f"epoch {row.epoch} was abandoned without a row that announced it")
        check_entry(body)
        check_undone(body)
        epoch.result, epoch.end = "abandoned", body
        for name in ("watermark", "maxima", "heard"):
            if body.get(name) != epoch.before.get(name):
                self._fault(row, f"`{name}` is not what it was before the abandoned epoch")
        if places(body) != places(epoch.before):
            self._fault(row, "the sources are not where they were before the abandoned epoch")
        return None

    def _fill(self, row: Row, body: Mapping[str, Any]) -> None:
        again, hashed = self._filling, sha(row.body)
        if again is None:
            number = len(self._now.backfills) + 1
            if (body["number"], row.attempt) != (number, 1):
                self._fault(row, f"expected backfill {number}, attempt 1, found backfill {body['number']}, "
                            f"attempt {row.attempt}")  # fmt: skip
            check_backfill(body)
            found = Backfill(row.generation, number, body, hashed, row.attempt, self.moved, epoch=row.epoch)
            self._now.backfills.append(found)
            return
        if (hashed, row.attempt) != (again.intent_hash, again.attempts + 1):
            self._fault(row, f"backfill {again.number} was computed again while it was open, or an attempt is missing")
        again.attempts = row.attempt

    def _filled(self, row: Row, body: Mapping[str, Any]) -> None:
        backfill = self._filling
        if backfill is None or body["intent"] != backfill.intent_hash:
            self._fault(row, "the end of a backfill without its intent")
            return
        check_written(body)
        _ = [whole(body["removed"][table]) for table in body["tables"]]
        backfill.result, backfill.end = "committed", body
        if backfill.is_deferred:
            self._faults(row, self._now.outstanding.correct(backfill.rewrites))

    def _defer(self, row: Row, body: Mapping[str, Any]) -> None:
        check_deferred(body)
        self._now.deferrals.append(Deferral(row.epoch, len(self._now.backfills), body, self._now.last))
        self._now.outstanding.defer(body["rewrites"])

    def _seal(self, row: Row, body: Mapping[str, Any]) -> None:
        _ = whole(body["successor"]), str(body["token"])
        self._now.seal, self._failed = body, False

    def _live(self, row: Row, body: Mapping[str, Any]) -> None:
        """A lifecycle change: it moves no epoch. Only a retired rule is dropped; a drop ends before anything else."""
        what = body["what"]
        if what in ("forgetting", "forgot"):
            busy = self._is_open or self._dropping or self._now.seal is not None
            self._faults(row, follow(self._now.forgets, row, body, busy))
            return
        if what == "skipped":
            self._faults(row, self._now.outstanding.skip(body["streams"]))
        due = {
            "retired": not self._retired,
            "returned": self._retired and not self._dropping,
            "renamed": bool(body.get("name")) and not self._dropping,
            "dropping": self._retired and not self._dropping,
            "dropped": self._dropping,
            "maintained": not self._dropping and self._now.seal is None,
            "moved": not self._dropping,
            "failed": bool(body.get("said")) and self._is_open,
            "recheck": self._failed and self._is_open,
            "redelivered": not self._dropping and self._now.seal is None,
            "skipped": self._filling is None and self._now.seal is None,
        }
        if not due[what]:
            self._fault(row, f"a rule that is {what} at a moment when it cannot be")
        self._retired = what != "returned" and (self._retired or what == "retired")
        self._failed = what == "failed" or (self._failed and what != "recheck")
        self._dropping = what == "dropping" or (self._dropping and what != "dropped")
        self.dropped |= dict.fromkeys(body.get("tables", {}).values(), row)
        for table, place in body.get("places", {}).items():
            self._move(row, table, str(place))

    def _move(self, row: Row, table: str, place: str) -> None:
        """A sink has another address from here on, whatever its name in earlier generations."""
        bodies = (self._now.begun, *(epoch.end for epoch in self._now.epochs))
        ids = [body["table_ids"][table] for body in bodies if table in body.get("table_ids", {})]
        if not ids or not table.startswith("sink/"):
            return self._fault(row, f"a move of {table}, which is not a sink of the generation")
        self.moved = {**self.moved, ids[-1]: place}
        return None
