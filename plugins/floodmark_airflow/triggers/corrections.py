"""Manual run: answer a rewrite of a source that has stopped the rule (`floodmark correct`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow.sdk.exceptions import AirflowSkipException

from floodmark_airflow.triggers.fields import Flag, asks
from floodmark_airflow.triggers.operations import Operation, head_of, home_of, ledger_of

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark_airflow.tries import Tries

KINDS = ("backfill", "backfilled", "intent", "life")  # of rows that tell what a correction's run did


@dataclass(frozen=True, kw_only=True)
class Correct(Operation):
    """Recomputes what the rewrites change, or passes them over; then the rule runs."""

    name: ClassVar = "correct"
    about: ClassVar = "recompute what a DELETE, UPDATE or overwrite of a source changes, or pass it over"
    skip: bool = asks(Flag("skip", "pass the commits over: neither what they remove nor what they add counts"))

    def preview(self, rule: Rule) -> str:
        from floodmark.connectors.planning.rewrites import answered

        head = head_of(rule)
        found = _unanswered(rule, head)
        if not found:
            raise AirflowSkipException("no row that the rule has read was removed or changed")
        answered(rule, home_of(rule), head, "skip" if self.skip else "correct")
        commits = ", ".join(f"{commit} of stream {name}" for name, ones in found.items() for commit in ones)
        return f"{'passing over' if self.skip else 'correcting after'} {commits}"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        """A try may have passed a commit over in the epoch that it then committed, or given its correction up.

        A correction that others began may be of an older rewrite: it counts once no other one is left.
        """
        ledger = ledger_of(rule)
        rows = [row for row in ledger.rows if row.generation == ledger.begun.generation]
        bodies = [(row, json.loads(row.body)) for row in rows if row.kind in KINDS]
        begun = [(body["number"], row) for row, body in bodies if row.kind == "backfill" and "rewrites" in body]
        mine = {number for number, row in begun if tries.wrote(row)}  # another run may have finished them
        ended = [(body["number"], row) for row, body in bodies if row.kind == "backfilled"]
        corrected = [one for one, row in ended if one in dict(begun) and (one in mine or tries.wrote(row))]
        skipped = [row.epoch for row, body in bodies if row.kind == "intent" and "skipped" in body and tries.wrote(row)]
        committed = [epoch for epoch in skipped if epoch <= ledger.begun.epoch]
        given_up = [body["streams"] for row, body in bodies if body.get("what") == "skipped" and tries.wrote(row)]
        if self.skip and given_up:
            return f"the rewrites of {', '.join(given_up[-1])} will not be corrected"
        if self.skip:
            return f"epoch {committed[-1]} has passed them over" if committed else None
        if not corrected or (mine.isdisjoint(corrected) and _unanswered(rule, ledger.begun)):
            return None
        return f"correction {corrected[-1]} is committed"


def _unanswered(rule: Rule, head: Head) -> dict[str, list[str]]:
    """By stream, the commits that are neither corrected nor passed over."""
    from floodmark.connectors.planning.rewrites import unread
    from floodmark.core.lifecycle.corrections import commits_of

    found = {name: commits_of(ones) for name, ones in head.deferred.items()}
    for name, one in unread(rule, home_of(rule), head).items():
        found[name] = [*found.get(name, []), *one.commits]
    return found
