"""Manual run: answer a rewrite of a source that has stopped the rule (`floodmark correct`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowSkipException

from floodmark.core.protocol.records.rows import Life
from floodmark.errors import Refused
from floodmark_airflow.triggers.fields import Flag, Texts, asks
from floodmark_airflow.triggers.operations import Operation, head_of, home_of, ledger_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark_airflow.tries import Tries

KINDS = ("backfill", "backfilled", "intent", "life")  # of rows that tell what a correction's run did


class Streams(Texts):
    """Names of streams; the command takes each with `--stream`."""

    def words(self, value: tuple[str, ...]) -> list[str]:
        return [f"--stream={one}" for one in value]


@dataclass(frozen=True, kw_only=True)
class Correct(Operation):
    """Recomputes what the rewrites change, or passes them over; then the rule runs."""

    name: ClassVar = "correct"
    about: ClassVar = "recompute what a DELETE, UPDATE or overwrite of a source changes, or pass it over"
    skip: bool = asks(Flag("skip", "pass the commits over: neither what they remove nor what they add counts"))
    streams: tuple[str, ...] = asks(Streams("streams", "with `skip`, act on these streams alone; by default, on all"))

    def preview(self, rule: Rule) -> str:
        from floodmark.connectors.planning.rewrites import answered

        head = head_of(rule)
        found = _unanswered(rule, head)
        if not found:
            raise AirflowSkipException("no row that the rule has read was removed or changed")
        if self.skip:
            said = _skipping(rule, head, self.streams)
            if self.dry_run:  # the command has none with `--skip`: no result changes
                raise AirflowSkipException(f"a dry run: {said}")
            return said
        if self.streams:
            raise Refused("streams: expected none without `skip`, because each run corrects all streams together")
        answered(rule, home_of(rule), head, "correct")
        commits = ", ".join(f"{commit} of stream {name}" for name, ones in found.items() for commit in ones)
        return f"correcting after {commits}"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        """A try may have passed a commit over in the epoch that it then committed, or given its correction up.

        A correction that others began may be of an older rewrite: it counts once no other one is left. A stream that
        was passed over is done with: later commits, which nobody has decided about, are left to the rule's next run.
        """
        ledger = ledger_of(rule)
        rows = [row for row in ledger.rows if row.generation == ledger.begun.generation]
        bodies = [(row, json.loads(row.body)) for row in rows if row.kind in KINDS]
        begun = [(body["number"], row) for row, body in bodies if row.kind == "backfill" and "rewrites" in body]
        mine = {number for number, row in begun if tries.wrote(row)}  # another run may have finished them
        ended = [(body["number"], row) for row, body in bodies if row.kind == "backfilled"]
        corrected = [one for one, row in ended if one in dict(begun) and (one in mine or tries.wrote(row))]
        skipped = [(row.epoch, body["skipped"]) for row, body in bodies if "skipped" in body and tries.wrote(row)]
        committed = {epoch: streams for epoch, streams in skipped if epoch <= ledger.begun.epoch}
        given_up = [Life.model_validate(body) for row, body in bodies if _gives_up(body) and tries.wrote(row)]
        if self.skip:
            names = [name for one in given_up for name in one.streams]
            passed = {*chain.from_iterable(committed.values()), *chain.from_iterable(map(_only_given_up, given_up))}
            return None if self._is_left(rule, ledger.begun, names, passed) else _skipped(names, [*committed])
        if not corrected or (mine.isdisjoint(corrected) and _unanswered(rule, ledger.begun)):
            return None
        return f"correction {corrected[-1]} is committed"

    def _is_left(self, rule: Rule, head: Head, given_up: Collection[str], passed: Collection[str]) -> bool:
        """Whether a rewrite has yet to be skipped: a kill may come between the two ways of passing commits over.

        passed: streams that a committed epoch of these tries has passed over; commits behind it, which nobody may have
        decided about, are left to the rule's next run. Of a stream that was corrected before, only what waited is given
        up; a correction follows later commits.
        """
        from floodmark.connectors.planning.rewrites import stopped

        stops = stopped(rule, home_of(rule), head)
        followed = {name for name in given_up if name in head.corrected and name not in stops}
        return not followed.union(passed).issuperset(_unanswered(rule, head).keys() & {*(self.streams or stops)})


def _gives_up(body: dict[str, Any]) -> bool:
    return bool(body.get("what") == "skipped")


def _only_given_up(life: Life) -> Collection[str]:
    """The streams of which nothing but their deferred rewrites was to be skipped; none where the row does not say."""
    return () if life.over is None else {*life.streams}.difference(life.over)


def _skipped(given_up: Sequence[str], committed: Sequence[int]) -> str | None:
    if given_up:
        return f"the rewrites of {', '.join(dict.fromkeys(given_up))} will not be corrected"
    return f"epoch {committed[-1]} has passed them over" if committed else None


def _skipping(rule: Rule, head: Head, streams: Collection[str]) -> str:
    """What `correct --skip` does to each stream. Raises the error that refuses it."""
    from floodmark.connectors.planning.rewrites import answered, unread
    from floodmark.core.lifecycle.corrections import skips

    found = skips(rule, head, unread(rule, home_of(rule), head), streams)
    answered(rule, home_of(rule), head, "skip", found.over)
    return "; ".join(found.described())


def _unanswered(rule: Rule, head: Head) -> dict[str, list[str]]:
    """By stream, the commits that are neither corrected nor passed over."""
    from floodmark.connectors.planning.rewrites import unread
    from floodmark.core.lifecycle.corrections import commits_of

    found = {name: commits_of(ones) for name, ones in head.deferred.items()}
    for name, one in unread(rule, home_of(rule), head).items():
        found[name] = [*found.get(name, []), *one.commits]
    return found
