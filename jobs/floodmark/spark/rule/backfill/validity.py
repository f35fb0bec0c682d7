"""Whether a correction that was computed without the rule's lock may still be put into its tables."""

from __future__ import annotations

from pyspark.sql import DataFrame

from floodmark.core.lifecycle.corrections import still_valid
from floodmark.core.protocol.records.head import Head
from floodmark.ledger.home import Home
from floodmark.spark.rule.backfill import bykey
from floodmark.spark.rule.backfill.backfilling import Recomputed
from floodmark.spark.rule.backfill.rereading import reread, within
from floodmark.spark.rule.backfill.taking import keys_for
from floodmark.spark.write.replacing import OfKeys


def is_valid(done: Recomputed, home: Home, basis: Head, now: Head) -> bool:
    """Whether epochs since the head `basis`, as of which it was computed, have left alone what it touches."""
    found = still_valid(done.plan.rule, done.intent, basis, now)
    if found is not None:
        return found
    rows = reread(done.session, done.plan, home, basis.entry, now.entry)
    if not done.intent.keys:
        return within(done.plan, rows, done.intent).isEmpty()
    return all(touched.isEmpty() for touched in _same_keys(done, rows, basis))


def _same_keys(done: Recomputed, rows: DataFrame, basis: Head) -> list[DataFrame]:
    """The results, and the state's keys, that these rows touch as well."""
    touched = bykey.touched_by(done.session, done.plan, rows, basis)
    sinks = [
        OfKeys(keys_for(done.plan, address, done.rows[name])).of(keys_for(done.plan, address, touched))
        for name, address in done.sinks.items()
    ]
    keys = touched.selectExpr(*bykey.state_keys(done.plan))
    return [*sinks, *(of.of(keys) for of in done.replaced.values() if isinstance(of, OfKeys))]
