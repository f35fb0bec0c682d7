"""Take the open epoch back. Every step can be repeated after a kill.

1. LOOK      what the epoch did to the sinks. If not all of that can be undone, the request is refused.
2. ANNOUNCE  a row of the ledger: from then on every run of the rule takes the epoch back.
3. UNDO      one commit in each sink undoes the epoch's commits, and blocks any further ones.
4. END       a row of the ledger: the epoch has no effect, and the rule is in the same state as before it.
"""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from floodmark.connectors.abandoning import Readers, inspect_sink, inspect_sinks
from floodmark.connectors.delta.sink import DeltaSink
from floodmark.core.lifecycle.abandoning import (
    SinkState,
    Undo,
    abandonable,
    abandoned_row,
    check_sink,
    is_undone,
    net_of,
    still_undoable,
)
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Undone
from floodmark.core.protocol.recovery import app_id, undo_version
from floodmark.core.rules.rule import Rule
from floodmark.core.text.tablenames import about_named
from floodmark.errors import Fenced, ReplayDiffers
from floodmark.ledger.delta import tablelog, tables
from floodmark.ledger.delta.syncing import sync_commit
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.spark.session.faults import of_table
from floodmark.spark.write.reverting import Reverting
from floodmark.spark.write.sites import Site


def begin(ledger: Ledger, rule: Rule, home: Home, readers: Readers) -> None:
    """LOOK and ANNOUNCE; does nothing if that is announced already. `readers`: of tables, by `identity`."""
    head = abandonable(ledger.head, rule.rule)
    if head.abandoning:
        return
    check_sink(rule.rule, head.epoch + 1, inspect_sinks(head, rule, home, ledger.id, readers))
    reach(rule.rule, "abandon.before", head.epoch + 1)
    ledger.abandon()
    reach(rule.rule, "abandon.announced", head.epoch + 1)


def finish(session: SparkSession, ledger: Ledger, rule: Rule, home: Home) -> int:
    """UNDO and END; returns the number of the epoch."""
    head = ledger.begun
    assert head.open is not None and head.abandoning
    epoch, seen = head.epoch + 1, inspect_sinks(head, rule, home, ledger.id, {})
    for one in seen:
        still_undoable(rule.rule, epoch, one)
    done = {one.name: _undone(session, rule.rule, one, head, ledger.id) for one in seen}
    reach(rule.rule, "abandon.commit.before", epoch)
    ledger.take_back(abandoned_row(head, done))
    reach(rule.rule, "abandon.commit.after", epoch)
    return epoch


def _undone(session: SparkSession, rule: str, seen: SinkState, head: Head, ledger: str) -> Undone:
    site = Site(seen.name, "sink", seen.address, app_id(ledger, head.generation, head.token, "sink"))
    reach(rule, "abandon.sink.before", head.epoch + 1)
    with of_table(site.name):
        if seen.undo is not Undo.DONE:
            _undo(session, rule, site, head, ledger)
        done = _compared(site, head)
    reach(rule, "abandon.sink.after", head.epoch + 1)
    return done


def _undo(session: SparkSession, rule: str, site: Site, head: Head, ledger: str) -> None:
    """Undo in a transaction that starts before the look, so an attempt that commits after it causes a conflict."""
    assert head.open is not None
    begun = Reverting(session, site.address, site.app)
    seen = inspect_sink(site.address, head, ledger, name=site.name)
    still_undoable(rule, head.epoch + 1, seen)
    begun.undo(seen)
    version, intent = undo_version(head.epoch + 1), head.open.digest
    facts = {"epoch": head.epoch + 1, "attempt": head.attempt, "intent": intent, "undoes": list(seen.commits)}
    said = json.dumps({"app": site.app, "version": version, **facts}, separators=(",", ":"))
    if begun.commit(version, said) is None:
        raise Fenced(about_named(site.name, "another writer committed in between; nothing was undone there. Retry"))


def _compared(site: Site, head: Head) -> Undone:
    """VERIFY: the table's commit reversed the epoch's commits, and did nothing else."""
    assert head.open is not None
    version = undo_version(head.epoch + 1)
    found = tablelog.our_commit(site.address, site.app, version)
    undoes = tuple(found.metadata["undoes"])
    done = net_of([tables.entry_actions(site.address, found.commit)])
    if found.metadata["intent"] != head.open.digest or not is_undone(
        done, net_of(tables.entry_actions(site.address, commit) for commit in undoes)
    ):
        raise ReplayDiffers(
            about_named(
                site.name,
                f"expected commit {found.commit} to undo commits {undoes} of epoch {head.epoch + 1}, found "
                "that it did something else: the log was changed. Restore it, or start over with `floodmark reset`",
            )
        )
    sync_commit(site.address, found.commit)
    return Undone(version=version, commit=found.commit, undoes=undoes, table_id=DeltaSink(site.address).id())
