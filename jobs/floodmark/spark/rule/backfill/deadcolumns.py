"""By which columns dead rows are looked for in a source: all that they hold, and the source still has.

The rule may read some of them no more. A row may have died for such a column, and by it alone be told from a good one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from floodmark.connectors.columns import needed, with_checked_columns
from floodmark.connectors.ports.registry import sources
from floodmark.core.lifecycle.changes import same_results
from floodmark.core.process.calls import REJECTIONS
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Columns
from floodmark.core.rules.rule import Rule
from floodmark.core.rules.sinks.sinkcolumns import QUARANTINE_COLUMNS
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.spark.fold.folds import fold_of
from floodmark.spark.rule.generation import Plan

# SQL: whether a class has rejected a dead row. Any earlier epoch may have read it, as it may have waited in the state.
REJECTED = " OR ".join(f"startswith(_reason, '{reason}')" for reason in REJECTIONS)
WIDENED = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))  # by Delta, each to a later one


@dataclass(frozen=True)
class Text:
    """A text by which epochs of the generation have run, from epoch `first` on, which ended at `entry`.

    columns: of each stream, those that `SELECT *` meant.
    """

    first: int
    entry: Entry
    rule: Rule
    columns: Columns

    def read(self, name: str, held: Sequence[str]) -> set[str]:
        """Those of the columns `held`, in lower case, that this text read of a stream, expectations included."""
        known = [column.lower() for column, _ in self.columns.get(name, ())]
        among = dict.fromkeys(held, "")
        wanted = known if known and self.rule.query.star else needed(self.rule, name, among)
        return set(with_checked_columns(self.rule, name, wanted, among)) - _made(self.rule, name)

    def lacks(self, streams: Mapping[str, StructType]) -> bool:
        """Whether this text did not read one of these columns, given by stream."""
        for name, schema in streams.items():
            wanted = {column.lower() for column in schema.names} - _made(self.rule, name)
            if not wanted <= self.read(name, [*wanted]):
                return True
        return False


@dataclass(frozen=True)
class Compared:
    """How some dead rows are compared with those of the sources.

    which: SQL. columns: of each stream, those to compare. gone: those that the dead rows hold, too, but the source has
    no more under that name and type.
    """

    which: str
    columns: dict[str, list[StructField]]
    gone: dict[str, list[str]]


def texts_of(home: Home, head: Head) -> Iterator[Text]:
    """Those that compute other results, or mean other columns, than the one before. Two installations that run a rule
    in turn have two spellings of one text, and each of many epochs may have the other one."""
    ledger = LedgerReader.load(home.ledger)
    assert ledger is not None
    rules, last, columns = dict[str, Rule](), None, head.begun_with.columns
    alike = set[str]()  # spellings of the last text
    for row in ledger.rows:
        if row.kind == "intent" and row.generation == head.generation and row.epoch <= head.epoch:
            body = json.loads(row.body)
            written, columns = body["rule"], body.get("columns") or columns
            rule = rules.get(written) or rules.setdefault(written, Rule.from_json(written))
            if last is None or columns != last.columns or not (written in alike or same_results(last.rule, rule)):
                last, alike = Text(row.epoch, Entry.parse(body["entry"]), rule, columns), set()
                yield last
            alike.add(written)


def wider(session: SparkSession, plan: Plan, home: Home, texts: Sequence[Text], dead: StructType) -> Plan:
    """The plan, which also reads what dead rows hold by earlier texts, as far as the sources have it."""
    shape, held, more = plan.fold.shape, _held(dead), dict[str, StructType]()
    kinds = {field.name.lower(): field for field in dead}
    for name, source in sources(plan.rule, home).items():
        there = {field.name.lower() for field in shape.columns(name)}
        lacking = {column for text in texts for column in text.read(name, held)} - there
        if lacking.isdisjoint(column.lower() for column in source.columns()):
            continue
        fields = [one for one in source.typed(session).schema if one.name.lower() in lacking]
        more[name] = StructType(
            [*shape.columns(name), *(one for one in fields if _comparable(kinds[one.name.lower()], one))]
        )
    if not more:
        return plan
    widened = dataclasses.replace(shape, more={**shape.more, **more})
    return dataclasses.replace(plan, fold=fold_of(plan.rule, widened, session))


def compared(plan: Plan, home: Home, texts: Sequence[Text], dead: StructType) -> list[Compared]:
    """By which columns dead rows are found again, the most first. plan: a `wider` one.

    Raises HistoryGone if the name of one is that of another column by now.
    """
    found: dict[tuple[str, str], tuple[Compared, list[tuple[int, int]]]] = {}
    ends = [*(text.first - 1 for text in texts[1:]), (1 << 63) - 1]
    for text, end in zip(texts, ends, strict=True):
        for which, read in _kinds(plan, {name: text.read(name, _held(dead)) for name in plan.rule.streams}):
            columns = {name: [one for one in _own(plan, name) if one.name.lower() in read[name]] for name in read}
            _check_same(plan, home, text, columns)
            one = Compared("", columns, _gone(text, read, columns))
            found.setdefault((repr(one), which), (one, []))[1].append((text.first, end))
    each = (dataclasses.replace(one, which=f"({within(spans)}){which}") for (_, which), (one, spans) in found.items())
    return sorted(each, key=lambda one: -sum(map(len, one.columns.values())))


def _kinds(plan: Plan, read: dict[str, set[str]]) -> Iterator[tuple[str, dict[str, set[str]]]]:
    """Conditions of dead rows, with what the rows have of the columns that their epoch read.

    A row that waits for its class has none of the columns that only expectations read.
    """
    streams = plan.fold.shape.streams
    kept = {name: read[name] & {column.lower() for column in schema.names} for name, schema in streams.items()}
    if plan.rule.process is None or kept == read:
        yield "", read
    else:
        yield f" AND NOT ({REJECTED})", read
        yield f" AND ({REJECTED})", kept


def within(spans: Sequence[tuple[int, int]]) -> str:
    """SQL: whether a row's epoch is in one of the spans, in their order. Spans that follow each other are one."""
    joined: list[tuple[int, int]] = []
    for first, upto in spans:
        if joined and joined[-1][1] == first - 1:
            joined[-1] = (joined[-1][0], upto)
        else:
            joined.append((first, upto))
    return " OR ".join(f"_epoch BETWEEN {first} AND {upto}" for first, upto in joined)


def _held(dead: StructType) -> list[str]:
    return [field.name.lower() for field in dead if field.name.lower() not in QUARANTINE_COLUMNS]


def _own(plan: Plan, name: str) -> list[StructField]:
    """The columns that are read of a stream's source."""
    return [field for field in plan.fold.shape.columns(name) if field.name.lower() not in _made(plan.rule, name)]


def _made(rule: Rule, name: str) -> set[str]:
    """The event time of a stream, in lower case, if an expression computes it: the source has no such column."""
    time = rule.streams[name].event_time
    return {time.name.lower()} if time is not None and time.expr is not None else set()


def _gone(
    text: Text, read: Mapping[str, set[str]], columns: Mapping[str, Sequence[StructField]]
) -> dict[str, list[str]]:
    """By stream. The dead table has the columns of all streams, and the words of the SQL do not say of which one is."""
    there = {name: {field.name.lower() for field in fields} for name, fields in columns.items()}
    found = {}
    for name, wanted in read.items():
        known = {column.lower() for column, _ in text.columns.get(name, ())}
        others = set().union(*(one for other, one in there.items() if other != name)) - known
        found[name] = sorted(wanted - there[name] - others)
    return found


def _check_same(plan: Plan, home: Home, text: Text, columns: Mapping[str, Sequence[StructField]]) -> None:
    for (name, source), line in zip(sources(plan.rule, home).items(), text.entry.offsets, strict=True):
        source.check_columns(line, (field.name for field in columns[name]))


def _comparable(held: StructField, now: StructField) -> bool:
    """Whether the source's type holds each value of the dead table's, as it is."""
    before, after = held.dataType.simpleString(), now.dataType.simpleString()
    wider = (kinds[kinds.index(before) :] for kinds in WIDENED if before in kinds)
    return before == after or any(after in kinds for kinds in wider)
