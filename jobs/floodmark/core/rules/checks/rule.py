"""Checks whether the parts of a rule are consistent with each other, beyond single fields."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.rules.checks.assets import check_assets
from floodmark.core.rules.checks.columns import check_names
from floodmark.core.rules.checks.epochs import (
    check_epoch,
    check_freshness,
    check_rebuild,
    check_rows_per_window,
    check_schedule,
)
from floodmark.core.rules.checks.process import check_process
from floodmark.core.rules.checks.query import check_sql
from floodmark.core.rules.checks.recomputing import check_rewrites
from floodmark.core.rules.checks.sinks import (
    check_growing,
    check_never_replaced,
    check_refusals,
    check_resets,
    check_sink_columns,
    check_sinks,
    check_upserts,
)
from floodmark.core.rules.checks.streams import check_idle, check_kinds, check_late, check_lookups, check_streams
from floodmark.core.rules.expectations import expected
from floodmark.core.rules.model import Rule
from floodmark.core.text.yamltree import Path as Field
from floodmark.errors import SqlAt


def check(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    """Every problem of a rule whose fields are valid one by one: the field it concerns, and what is wrong."""
    yield from check_names(rule)
    yield from check_streams(rule)
    yield from check_kinds(rule)
    yield from check_lookups(rule)
    yield from check_late(rule)
    yield from check_idle(rule)
    yield from check_sinks(rule)
    yield from check_upserts(rule)
    yield from check_resets(rule)
    yield from check_refusals(rule)
    yield from check_sink_columns(rule)
    yield from check_never_replaced(rule)
    yield from check_growing(rule)
    yield from check_epoch(rule)
    yield from check_schedule(rule)
    yield from check_freshness(rule)
    yield from check_assets(rule)
    yield from expected(rule)
    found = list(check_sql(rule) if rule.process is None else check_process(rule, rule.process))
    yield from found
    if not found:
        yield from check_rebuild(rule)
        yield from check_rewrites(rule)
        yield from check_rows_per_window(rule)
