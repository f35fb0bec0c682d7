"""Adapt the rule's own tables to an edit.

Late and dead tables get new columns, if rows are now read with more of them. For a class's state, states and columns
are added or dropped, and types widened; `core.lifecycle.changes` has already checked that every stored value fits. The
driver that holds the rule's lock rewrites a table in one commit, between epochs. Repeated after a kill, it finds
nothing to do.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.core.lifecycle.changes import misfits
from floodmark.core.sql.words.lexis import quoted
from floodmark.core.text.ddl import columns_of
from floodmark.errors import RuleChanged, WrongColumn
from floodmark.ledger.delta import datafiles, tables
from floodmark.ledger.delta.syncing import sync_table
from floodmark.ledger.ledger import Ledger
from floodmark.spark.read import typechanges
from floodmark.spark.read.shape import quarantine_schema
from floodmark.spark.rule.generation import Plan, Sites, make_state
from floodmark.spark.session.session import refuse_leaked_transaction
from floodmark.spark.write import layouts, tablesink
from floodmark.spark.write.sites import Site


def fit_state(session: SparkSession, plan: Plan, found: Sites, ledger: Ledger) -> None:
    """Adapt the state tables of a process rule to what its class declares now."""
    process = plan.rule.process
    for name, site in found.state.items() if process else ():
        if tables.open_table(site.address) is None:
            make_state(session, plan, name, site, ledger.id)
        elif process and name in process.state:
            _fit(session, plan, name, site, ledger.begun.epoch + 1)


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


def _refuse_other_types(rule: str, name: str, present: StructType, wanted: StructType, stays: str) -> None:
    found = typechanges.wrong_types(present, wanted)
    wrong = "; ".join(f"{path}: kept as {known}, found {now}" for path, known, now in found)
    if wrong:
        raise WrongColumn(
            f"rule {rule}: expected the column types of its {name} rows ({wrong}). Nothing was read, and {stays}. "
            f"Delta cannot narrow a type again: start over with `floodmark reset {rule}`, or with `floodmark reset "
            f"{rule} --keep-output`, after which the sinks keep their rows and also get the rows of the same input "
            "again"
        )


def _fit(session: SparkSession, plan: Plan, name: str, site: Site, coming: int) -> None:
    """`coming`: the first epoch with which the table has these columns."""
    rows = session.read.format("delta").load(site.address)
    wanted = plan.fold.tables[name]
    if _types(rows.schema) == _types(wanted):
        return
    _refuse_misfits(plan, name, rows.schema)
    refuse_leaked_transaction(session)
    writer = _fitted(rows, wanted).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.option("userMetadata", datafiles.holding_from(coming)).save(site.address)
    sync_table(site.address)


def _types(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _refuse_misfits(plan: Plan, name: str, present: StructType) -> None:
    """Raise RuleChanged for a state that was dropped and is declared again with a type that its values do not fit."""
    assert plan.rule.process is not None
    wanted = columns_of(plan.rule.process.state[name])
    known = {column.name for column in wanted}
    old = columns_of(
        ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in present if f.name in known) or "none int"
    )
    wrong = list(misfits(old, wanted))
    if wrong:
        raise RuleChanged(
            f"rule {plan.rule.rule}: state[{name!r}] would have to change: {', '.join(wrong)}. Undo the change, "
            f"use another name, or start a new generation with `floodmark reset {plan.rule.rule}`"
        )


def _fitted(rows: DataFrame, wanted: StructType) -> DataFrame:
    there = set(rows.columns)
    return rows.select(
        *(
            (F.col(quoted(field.name)) if field.name in there else F.lit(None)).cast(field.dataType).alias(field.name)
            for field in wanted
        )
    )
