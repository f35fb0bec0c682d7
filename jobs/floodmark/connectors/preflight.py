"""What can be refused before Spark starts: answered from logs and schemas, without a JVM."""

from __future__ import annotations

from pathlib import Path

from floodmark.connectors.columns import check_columns
from floodmark.connectors.delta import DeltaSink, delta_sinks
from floodmark.connectors.lookups import check_lookups
from floodmark.connectors.registry import sources
from floodmark.core.rules import Rule
from floodmark.ledger.home import Home, check_home
from floodmark.ledger.ledger import LedgerReader


def check_without_jvm(rule: Rule, root: Path) -> None:
    """Everything that can be refused before Spark starts, with nothing written but the home's probe."""
    check_home(root, rule.qos)
    ledger = LedgerReader.load(Home(root, rule.rule).ledger)
    check_tables(rule, ledger.id if ledger else None)


def check_tables(rule: Rule, owner: str | None) -> None:
    """Sinks are this ledger's (`owner`: its id) or free, and the streams are fit. Writes nothing."""
    for address in delta_sinks(rule):
        DeltaSink(address).check(owner)
    check_streams(rule)


def check_streams(rule: Rule) -> None:
    """Streams and lookup tables are there and have columns that fit the rule."""
    check_lookups(rule)
    for name, source in sources(rule).items():
        check_columns(rule, name, source.columns())
