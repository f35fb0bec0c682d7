"""Adapt the rule's own tables to an edit.

Late and dead tables get new columns, if rows are now read with more of them. For a class's state, states and columns
are added or dropped, and types widened; `core.lifecycle.changes` has already checked that every stored value fits. The
driver that holds the rule's lock rewrites a table in one commit, between epochs. Repeated after a kill, it finds
nothing to do.

The class of the newest committed epoch may come back: an epoch with the edited one may fail, or be abandoned. So what
it has stored stays until an epoch of the edited class is committed, or a backfill of everything has written the state
by that. What that class could not see any more goes at once: values whose lifetime is over, timers without a method.
Of a state that the edited class drops, too: a later class may declare it again, with another lifetime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.core.lifecycle.changes import misfits
from floodmark.core.process.context import CLOCK_TIMERS, TIMERS
from floodmark.core.process.declaration import OWN_TABLES
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Columns
from floodmark.core.sql.words.lexis import quoted
from floodmark.core.text.ddl import Type, columns_of
from floodmark.errors import RuleChanged, WrongColumn
from floodmark.ledger.delta import tables
from floodmark.ledger.ledger import Ledger
from floodmark.spark.read import typechanges
from floodmark.spark.read.shape import quarantine_schema
from floodmark.spark.rule import generation
from floodmark.spark.rule.generation import Plan, Sites, make_state
from floodmark.spark.write import layouts, tablesink
from floodmark.spark.write.sites import Site
from floodmark.spark.write.staterewrites import StateRewrite

GONE = "_floodmark_gone"  # whether a value was not seen any more


def fit_state(session: SparkSession, plan: Plan, found: Sites, ledger: Ledger) -> bool:
    """Adapt the state tables of a process rule to what its class declares now. Whether columns of the class before it
    are still there."""
    process, keeps = plan.rule.process, False
    for name, site in found.state.items() if process else ():
        if tables.open_table(site.address) is None:
            make_state(session, plan, name, site, ledger.id)
            continue
        _remove_gone(session, plan, name, site, ledger.begun)
        if process and name in process.state:
            keeps |= _fit(session, plan, name, site, ledger.begun)
    for name, site in _dropped(plan, found, ledger.begun):
        _remove_gone(session, plan, name, site, ledger.begun)
    return keeps


def check_parts(plan: Plan, found: Sites, recorded: Columns) -> None:
    """Raise WrongColumn if partial aggregates or numbered rows in state have a column whose type is another now, such
    as a struct that gained a field.

    They cannot be told from the columns of the streams, as rows in state can. recorded: those of the last epoch. It has
    none of lookup tables: beside these, the state's own columns are compared each time.
    """
    now = generation.columns_of(plan.fold.shape.streams)
    is_same = not plan.rule.lookups and all(recorded.get(name, now[name]) == now[name] for name in now)
    if plan.rule.process or plan.rule.rebuild or is_same:
        return
    for name in plan.fold.tables.keys() - now.keys():
        site = found.state[name]
        if tables.open_table(site.address) is not None:
            present, wanted = layouts.schema_of(site.address), plan.fold.tables[name]
            more = [f"{path}{quoted(field.name)}: found {field.dataType.simpleString()}, kept without it"
                    for path, field in typechanges.gained_fields(present, wanted)]  # fmt: skip
            _refuse_other_types(plan.rule.rule, site.name, present, wanted, "no epoch is open", more)


def _dropped(plan: Plan, found: Sites, head: Head) -> Iterator[tuple[str, Site]]:
    """The states that the class before an edit has, and the edited one lacks. No later class knows their lifetime."""
    process, known = plan.rule.process, next(iter(found.state.values()), None)
    if process is None or known is None or head.process is None:
        return
    for name in head.process.state:
        if name not in process.state:
            address = str(Path(known.address).with_name(name))
            if tables.open_table(address) is not None:
                yield name, replace(known, name=f"state/{name}", address=address)


def fit_quarantine(session: SparkSession, plan: Plan, found: Sites, open_epoch: int | None = None) -> None:
    """Add to the late and dead tables the columns, and to structs in them the fields, that rows have now.

    Raises WrongColumn for a column whose type there cannot be changed to the current one.
    """
    stays = "no epoch is open" if open_epoch is None else f"epoch {open_epoch} stays open"
    wanted = quarantine_schema(plan.fold.shape)
    for site in (found.late, found.dead):
        layouts.add_columns(session, site.address, wanted)
        there = layouts.schema_of(site.address)
        if any(typechanges.wrong_types(there, wanted)):
            tablesink.fit_empty(session, site.address, wanted)
            there = layouts.schema_of(site.address)
        _refuse_other_types(plan.rule.rule, site.name, there, wanted, stays)
        layouts.add_fields(session, site.address, typechanges.gained_fields(there, wanted))


def _refuse_other_types(
    rule: str, name: str, present: StructType, wanted: StructType, stays: str, more: Sequence[str] = ()
) -> None:
    """more: other differences, which are refused here, too."""
    found = typechanges.wrong_types(present, wanted)
    wrong = "; ".join([*(f"{path}: kept as {known}, found {now}" for path, known, now in found), *more])
    if wrong:
        raise WrongColumn(
            f"rule {rule}: expected the column types of its {name} rows ({wrong}). Nothing was read, and {stays}. "
            "Delta cannot narrow a type again or remove a field from a struct: start over with `floodmark reset "
            f"{rule}`, or with `floodmark reset {rule} --keep-output`, after which the sinks keep their rows and also "
            "get the rows of the same input again"
        )


def _fit(session: SparkSession, plan: Plan, name: str, site: Site, head: Head) -> bool:
    """The table has these columns from the coming epoch on. Whether it keeps others until that is committed."""
    rows = _rows_of(session, site)
    wanted, before = plan.fold.tables[name], _declared(head, name)
    kept = [field for field in rows.schema if field.name not in wanted.names and field.name in (before or {})]
    fitted = StructType([*wanted, *kept])
    stale = [one for one in _added(plan, name, before) if one in rows.columns and _has_values(rows, one)]
    if _types(rows.schema) == _types(fitted) and not stale:
        return bool(kept)
    has_rows = bool(rows.limit(1).count())
    if before is None and has_rows:
        _refuse_misfits(plan, name, rows.schema)
    rewrite = StateRewrite(session, site, head.epoch)  # before the rows are read that it leaves
    rewrite.fit(fitted)
    rewrite.finish(_fitted(_rows_of(session, site), fitted, stale if has_rows else rows.columns), head.epoch + 1)
    return bool(kept)


def _remove_gone(session: SparkSession, plan: Plan, name: str, site: Site, head: Head) -> None:
    gone = _gone(plan, name, head)
    if gone is None:
        return
    rows = _rows_of(session, site)
    over = _over(gone, _names_of(plan, name, rows.columns), head.lost)
    if rows.where(gone).limit(1).count() and _marked(rows, over).where(GONE).limit(1).count():
        rewrite = StateRewrite(session, site, head.epoch)  # before the rows are read that it leaves
        rewrite.finish(_marked(_rows_of(session, site), over).where(f"NOT {GONE}").drop(GONE), head.epoch + 1)


def _marked(rows: DataFrame, over: str) -> DataFrame:
    return rows.withColumn(GONE, F.expr(over))


def _over(gone: str, names: Sequence[str], lost: Collection[int]) -> str:
    """SQL: whether the newest value that a row's key and name have is gone. An older one would come back without it.

    At qos 0, epochs may store times that are not in order: a timer that was due in a lost epoch fires later.
    """
    seen = f"CASE WHEN _epoch NOT IN ({', '.join(map(str, lost))}) THEN _epoch END" if lost else "_epoch"
    return f"coalesce(max_by({gone}, {seen}) OVER (PARTITION BY {', '.join(map(quoted, names))}), false)"


def _names_of(plan: Plan, table: str, columns: Sequence[str]) -> list[str]:
    """The columns that identify a value in a state table."""
    assert plan.rule.process is not None
    key = {name.lower() for name in plan.rule.process.key} | ({"name"} if table in OWN_TABLES else set())
    return [name for name in columns if name.lower() in key]


def _gone(plan: Plan, name: str, head: Head) -> str | None:
    """SQL of the rows that the class before an edit could not see any more, and the edited one would see again: timers,
    if it had no method for them, and values whose shorter lifetime is over. None: there are none."""
    process, before = plan.rule.process, head.process
    assert process is not None
    if before is None:
        return None
    if name in (TIMERS, CLOCK_TIMERS):
        return None if name in before.tables else "true"
    old, now = before.ttl_us.get(name), process.ttl_us.get(name)
    if old is None or head.watermark is None or (now is not None and now <= old):
        return None
    return f"coalesce(_at <= {plan.fold.instant(head.watermark - old)}, false)"


def _rows_of(session: SparkSession, site: Site) -> DataFrame:
    return session.read.format("delta").load(site.address)


def _declared(head: Head, name: str) -> dict[str, Type] | None:
    """The columns of a state as the class that has written it declares them; None: it has no such state."""
    declared = head.process.state.get(name) if head.process else None
    return None if declared is None else {one.name: one.type for one in columns_of(declared)}


def _added(plan: Plan, name: str, before: Collection[str] | None) -> list[str]:
    """The columns that a state gets by the edit. What the table has of one was dropped, or never committed."""
    assert plan.rule.process is not None
    now = [column.name for column in columns_of(plan.rule.process.state[name])]
    return [] if before is None else [one for one in now if one not in before]


def _has_values(rows: DataFrame, column: str) -> bool:
    return bool(rows.where(F.col(quoted(column)).isNotNull()).limit(1).count())


def _types(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _refuse_misfits(plan: Plan, name: str, present: StructType) -> None:
    """Raise RuleChanged for a state that was dropped and is declared again with a type that its values do not fit."""
    assert plan.rule.process is not None
    wanted = columns_of(plan.rule.process.state[name])
    known = {column.name.lower() for column in wanted}
    old = columns_of(
        ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in present if f.name.lower() in known) or "none int"
    )
    wrong = list(misfits(old, wanted))
    if wrong:
        raise RuleChanged(
            f"rule {plan.rule.rule}: state[{name!r}] would have to change: {', '.join(wrong)}. Undo the change, "
            f"use another name, or start a new generation with `floodmark reset {plan.rule.rule}`"
        )


def _fitted(rows: DataFrame, fitted: StructType, stale: Collection[str]) -> DataFrame:
    """A value that does not fit is of an epoch that was not committed: its columns were wider."""
    there = set(rows.columns).difference(stale)
    return rows.select(
        *(
            (F.col(quoted(field.name)) if field.name in there else F.lit(None))
            .try_cast(field.dataType)
            .alias(field.name)
            for field in fitted
        )
    )
