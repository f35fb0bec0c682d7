"""Checks sinks: which results they take, how they merge, and their tables."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.rules.checks.columns import Problem, check_expression, given_by
from floodmark.core.rules.checks.epochs import input_files, is_stateful
from floodmark.core.rules.kinds import SINKS, can_of, sink_can, targets
from floodmark.core.rules.model import OUTBOX_KEEP_US, Rule, Sink
from floodmark.core.rules.sinks.delivery import delivery
from floodmark.core.rules.sinks.outboxes import ASIDE
from floodmark.core.rules.sinks.sinkcolumns import STAMPS, appends_only, replaces_rows
from floodmark.core.rules.sinks.tableproperties import STATISTICS, lacks_statistics, unfit_property
from floodmark.core.sql.tree.names import CHANGE_FEED, has_feed, of_feed
from floodmark.core.text.addresses import same_address, within
from floodmark.core.text.yamltree import Path as Field
from floodmark.errors import SqlAt


def check_upserts(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    for i, sink in enumerate(rule.sinks):
        for key, value in (("newest", sink.newest), ("delete", sink.delete)):
            if value is not None and not sink.key:
                yield ("sinks", i, key), f"expected `key` next to it: {key} compares the rows of one key"
        can = can_of(sink)
        if sink.key and not can.merges:
            yield (
                ("sinks", i, "key"),
                f"expected a kind of sink that supports upserts ({_that('merges')}), found {sink.kind}",
            )
        elif sink.newest is not None and not can.compares:
            yield (
                ("sinks", i, "newest"),
                f"expected a kind that compares rows ({_that('compares')}), found {sink.kind}, whose rows leave in the "
                "order in which they were committed: leave `newest` out, or let readers compare",
            )
        if sink.key and sink.options.get("key"):
            yield (
                ("sinks", i, sink.kind, "key"),
                "expected no `key` of the topic beside `key` of the sink, which is the records' key; found both",
            )
        if sink.newest is not None and sink.delete is not None:
            yield (
                ("sinks", i, "delete"),
                "expected `newest` or `delete`, found both: after a row is deleted, nothing records how new it was",
            )
        if sink.newest is not None and sink.where is not None:
            yield (
                ("sinks", i, "where"),
                "expected `newest` or `where`, found both: after a row no longer matches and is deleted, nothing "
                "records how new it was; if only matching rows count, put the condition in the SQL's WHERE",
            )
        if sink.delete:
            yield from check_expression(("sinks", i, "delete"), sink.delete)


def _that(can: str) -> str:
    """The kinds of sink with a capability."""
    return ", ".join(kind for kind in SINKS if getattr(sink_can(kind), can))


def check_resets(rule: Rule) -> Iterator[Problem]:
    """Report sinks that cannot keep their rows in a reset: tables, and those of a rule that replaces all rows."""
    for i, sink in enumerate(rule.sinks):
        if sink.on_reset == "keep" and rule.rebuild:
            yield (
                ("sinks", i, "on_reset"),
                "expected empty beside `rebuild: true`, where each run replaces all rows, found keep: leave it out",
            )
        elif sink.on_reset == "keep" and not sink_can(sink.kind).target:
            yield (
                ("sinks", i, "on_reset"),
                f"expected a target ({_that('target')}), found {sink.kind}: `floodmark reset --keep-output` keeps "
                "the rows of all sinks",
            )


def check_refusals(rule: Rule) -> Iterator[Problem]:
    """Report sinks that cannot set rows aside: tables, and targets with columns of the same names."""
    for i, sink in enumerate(rule.sinks):
        if sink.on_error == "stop":
            continue
        if not sink_can(sink.kind).target:
            yield (
                ("sinks", i, "on_error"),
                f"expected a target ({_that('target')}), found {sink.kind}: write `on_error` at the rule, for rows "
                "that its SQL cannot compute",
            )
        taken = [name for name in sink.columns or results_of(rule) if name.lower() in ASIDE]
        if taken:
            yield (
                ("sinks", i, "on_error"),
                f"expected results without {' and '.join(taken)}, because rows that are set aside have columns of that "
                "name: rename it in the SQL, with AS",
            )


def check_sink_columns(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    """Check which results a sink takes, and how its table is laid out."""
    for i, sink in enumerate(rule.sinks):
        of_a_table = {
            "properties": sink.properties,
            "partition_by": sink.partition_by,
            "cluster_by": sink.cluster_by,
            "schema": sink.adds_columns,
            "epoch_columns": sink.epoch_columns,
        }
        for key in (key for key, given in of_a_table.items() if given and not sink_can(sink.kind).table):
            yield ("sinks", i, key), f"expected a delta sink, because only a table has them; found {sink.kind}"
        if sink.outbox is None and (sink.outbox_bytes is not None or sink.outbox_keep_us != OUTBOX_KEEP_US):
            yield ("sinks", i, "outbox"), f"expected a target, because only those have an outbox; found {sink.kind}"
        yield from _properties(rule, i, sink)
        yield from _feed(rule, i, sink)
        yield from _stamped(rule, i, sink)
        if sink.partition_by and sink.cluster_by:
            yield (
                ("sinks", i, "cluster_by"),
                "expected `partition_by` or `cluster_by`, found both: a Delta table uses one or the other",
            )
        if sink.where:
            yield from check_expression(("sinks", i, "where"), sink.where)
        yield from _left_out(i, sink)


def _properties(rule: Rule, place: int, sink: Sink) -> Iterator[Problem]:
    for name, value in sink.properties.items():
        if why := unfit_property(name, value):
            yield ("sinks", place, "properties", name), f"expected no {name} of a sink: {why}"
        if (twin := next(one for one in sink.properties if one.lower() == name.lower())) != name:
            yield ("sinks", place, "properties", name), f"expected one property of that name, found {twin}, too"
    if replaces_rows(rule, sink) and lacks_statistics(sink.properties):
        yield (
            ("sinks", place, "properties"),
            f"expected {' or '.join(STATISTICS)}, because replacing rows (`key`, `rebuild`, or a stream with "
            "`on_rewrite: correct`) needs the statistics of the sink's files; found both false: remove one",
        )


def _feed(rule: Rule, place: int, sink: Sink) -> Iterator[Problem]:
    """Report columns whose names the change feed of the sink's table uses for its own."""
    for name in of_feed(sink.columns or results_of(rule)) if has_feed(sink.properties) else ():
        yield (
            ("sinks", place, "properties"),
            f"expected no column {name} with {CHANGE_FEED}, because the table's change feed adds one of that name; "
            "rename it in the SQL, with AS",
        )


def _stamped(rule: Rule, place: int, sink: Sink) -> Iterator[Problem]:
    taken = [name for name in (results_of(rule) if sink.epoch_columns else ()) if name.lower() in STAMPS]
    if taken:
        yield (
            ("sinks", place, "epoch_columns"),
            f"expected a result without {' and '.join(taken)}, because the sink adds {' and '.join(STAMPS)}: rename "
            "it in the SQL, with AS",
        )


def results_of(rule: Rule) -> list[str]:
    """The columns of the result, as far as the text shows them."""
    from floodmark.core.sql.query import output_columns

    if rule.process is not None:
        return given_by(rule.process)
    try:
        return output_columns(rule.sql, rule.event_times, rule.lookups.keys()) or []
    except SqlAt:  # reported by `check_sql`
        return []


def check_never_replaced(rule: Rule) -> Iterator[Problem]:
    """Report tables that only append in rules or sinks that replace rows."""
    for i, sink in enumerate(rule.sinks):
        if (sink.key or rule.rebuild) and (name := appends_only(sink.properties)):
            why = "a sink with `key`" if sink.key else "a rule that each run rebuilds"
            yield ("sinks", i, "properties"), f"expected no {name} in {why}, because its rows are replaced; remove it"


def _left_out(place: int, sink: Sink) -> Iterator[Problem]:
    """Report needed columns that `columns` lacks; if a table has all columns, only Spark knows them."""
    there = {name.lower() for name in sink.columns} | (set(STAMPS) if sink.epoch_columns else set())
    needed = {
        "key": sink.key,
        "newest": (sink.newest,) if sink.newest else (),
        "partition_by": sink.partition_by,
        "cluster_by": sink.cluster_by,
    }
    for key, names in needed.items() if sink.columns else ():
        for name in (name for name in names if name.lower() not in there):
            yield ("sinks", place, key), f"expected columns that are in `columns`, found {name}: add it to `columns`"
    if sink.columns and {name.lower() for name in sink.partition_by} == there:
        yield ("sinks", place, "partition_by"), "expected a column that is not in partition_by, found none"


def check_growing(rule: Rule) -> Iterator[Problem]:
    """Check that columns that the results gain reach only sinks that ask for them."""
    growing = [i for i, sink in enumerate(rule.sinks) if sink.adds_columns]
    if not growing:
        return
    if rule.process is not None:
        yield ("sinks", growing[0], "schema"), "expected `fail` with `process`: the class declares its output columns"
        return
    if any(stream.distinct for stream in rule.streams.values()) or is_stateful(rule):
        yield (
            ("sinks", growing[0], "schema"),
            "expected `fail`, or SQL without state: older rows in this rule's state do not have the new columns. "
            "Start over with `floodmark reset` to add them",
        )
    for i, sink in enumerate(rule.sinks):
        if sink_can(sink.kind).table and not sink.adds_columns and not sink.columns:
            yield (
                ("sinks", i),
                f"expected `schema: add_columns` as sink {growing[0] + 1} has it, or `columns`, found neither: this "
                "sink would have no place for a new result column",
            )


def check_sinks(rule: Rule) -> Iterator[Problem]:
    named = [sink.name for sink in rule.sinks if sink.name]
    shipped = [sink.label for sink in targets(rule)]
    for i, sink in enumerate(rule.sinks):
        if sink_can(sink.kind).target and not sink.name and shipped.count(sink.label) > 1:
            yield (
                ("sinks", i),
                f"expected a `name`, found none: {shipped.count(sink.label)} targets of the rule would be called "
                f"{sink.label}, by which commands and Airflow's tasks know them",
            )
        if sink.name and named.count(sink.name) > 1:
            yield ("sinks", i, "name"), f"expected a name that no other sink of the rule has, found {sink.name}"
        if sink.qos > rule.qos:
            yield (
                ("sinks", i, "qos"),
                f"expected at most the rule's qos {rule.qos}, found {sink.qos}: lower it, or raise the rule's",
            )
        for j, earlier in enumerate(rule.sinks[:i]):
            if sink.address and earlier.address and same_address(sink.address, earlier.address):
                yield (
                    ("sinks", i, sink.kind),
                    f"expected another address than that of sink {j + 1}, found {sink.address}: remove one of them",
                )
            elif sink.address and earlier.address and _nested(sink.address, earlier.address):
                yield ("sinks", i, sink.kind), _beside(f"sink {j + 1}", sink.address)
        for name, address in input_files(rule).items():
            if sink.address and same_address(sink.address, address):
                yield (
                    ("sinks", i, sink.kind),
                    f"expected another address than that of {name}, found {sink.address}: a rule cannot write what it "
                    "reads; give the sink a table of its own",
                )
            elif sink.address and _nested(sink.address, address):
                yield ("sinks", i, sink.kind), _beside(name, sink.address)
    for i, one in enumerate(delivery(rule)):
        if one.fix is not None and rule.sinks[i].qos <= rule.qos and one.refused:
            yield (
                ("sinks", i),
                f"expected a sink that can do {one.wanted} (qos {rule.sinks[i].qos}), found {one.sink}: {one.fix}",
            )


def _nested(one: str, other: str) -> bool:
    return within(one, other) or within(other, one)


def _beside(name: str, found: str) -> str:
    return (
        f"expected an address outside that of {name}, found {found}: a table inside another would lose its files to "
        "the other's clean-up"
    )
