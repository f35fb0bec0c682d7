"""Decides which edits of a rule apply within the same generation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from floodmark.core.protocol.records.rows import Columns
from floodmark.core.rules.checks.recomputing import why_not_corrected
from floodmark.core.rules.kinds import CODE
from floodmark.core.rules.rule import Process, Rule, Sink
from floodmark.core.text.ddl import Column, columns_of, fits
from floodmark.errors import RuleChanged, SqlRefused, WrongColumn

_REDECLARED = (
    ", declare a state of another name (an empty one can also be dropped from the class, and declared again after an "
    "epoch without it)"
)

# Fields of a rule that do not affect its results; of Spark's settings, one does (`ansi`).
BESIDE = {"hash", "description", "epoch", "cleanup", "schedule", "freshness", "group", "spark", "airflow"} | {
    "max_rows_per_window"
}
# Tables and files are known by their ids, and an address has many spellings.
_PLACE: dict[str, Any] = {"__all__": {"address": True, "options": {"path": True}}}


def same_results(one: Rule, other: Rule) -> bool:
    """Whether two texts with one hash compute the same: the values of variables are in a text, and not in its hash."""
    return _results(one) == _results(other)


def _results(rule: Rule) -> tuple[dict[str, Any], bool]:
    beside: dict[str, Any] = {**dict.fromkeys(BESIDE, True), **dict.fromkeys(("streams", "lookups", "sinks"), _PLACE)}
    return rule.model_dump(exclude=beside), rule.ansi


def check_edit(old: Rule, new: Rule) -> None:
    """Raise RuleChanged, naming each field, if `new` does not fit the progress made with `old`.

    Sinks may be added, and change their properties, cluster_by and schema. Schedule, group, description, epoch, late,
    on_error, expect, Airflow and Spark settings and stateless SQL may change; whether the SQL's columns stay the same
    is checked once types are known. So may the text of a class, and its state if every stored value still fits: states
    and columns added or dropped, types widened.
    """
    _refuse(new, [what for what, changed in _forbidden(old, new) if changed])


def check_state(stored: Process | None, new: Rule) -> None:
    """Raise RuleChanged for a class that cannot take the state which another one has `stored` by a backfill."""
    if stored is not None and new.process is not None:
        _refuse(new, [what for what, changed in _process(stored, new.process) if changed])


def _refuse(new: Rule, broken: Sequence[str]) -> None:
    if broken:
        declared = "" if not any(one.startswith("state[") for one in broken) else _REDECLARED
        raise RuleChanged(
            f"rule {new.rule}: changed {', '.join(broken)}; the state and sinks of this generation cannot follow. "
            f"Undo the change{declared}, or start a new generation from the start of the input with `floodmark reset "
            f"{new.rule}`"
        )


def check_keeps_corrections(rule: Rule, followed: Collection[str]) -> None:
    """Raise RuleChanged for a rule that passes rewrites of a stream over although its generation corrects some of it
    (`followed`): it would read again what was added, without what was corrected."""
    skipping = [name for name in rule.streams if name in followed and rule.streams[name].on_rewrite == "skip"]
    if skipping:
        correct = "" if next(why_not_corrected(rule, skipping[0]), None) else "`on_rewrite: correct` or "
        raise RuleChanged(
            f"rule {rule.rule}: expected {correct}`on_rewrite: stop` at stream {skipping[0]}, found skip: this "
            "generation corrects its rewrites, and cannot forget them. Undo the change, or start a new generation "
            f"from the start of the input with `floodmark reset {rule.rule}`"
        )


def check_state_tables(rule: str, stored: Collection[str], wanted: Collection[str]) -> None:
    """Raise RuleChanged if the SQL is computed from other state than the generation has, as after an upgrade."""
    lacking = sorted(set(wanted) - set(stored))
    if lacking:
        raise RuleChanged(
            f"rule {rule}: expected state {', '.join(lacking)}, from which this version computes the SQL, found "
            f"{', '.join(sorted(stored)) or 'none'}: the generation began with another version. Nothing is lost: run "
            f"the version before, or start over with `floodmark reset {rule}`"
        )


def check_state_columns(rule: str, recorded: Columns, found: Columns, stored: Mapping[str, Collection[str]]) -> None:
    """Raise WrongColumn if a column with rows in state has another type now, such as a struct that gained a field.

    kept: the columns of each state table, by its name; the table of a stream's rows has the stream's name.
    """
    wrong = [
        f"{stream}.{column}: kept as {known}, found {kind}"
        for stream in found.keys() & stored.keys()
        for column, kind in found[stream]
        if column in stored[stream] and (known := dict(recorded.get(stream, ())).get(column, kind)) != kind
    ]
    if wrong:
        raise WrongColumn(
            f"rule {rule}: expected the column types of the rows in its state ({'; '.join(sorted(wrong))}). Nothing "
            "was read, and no epoch is open. Delta cannot narrow a type again or remove a field from a struct: start "
            f"over with `floodmark reset {rule}`, or with `floodmark reset {rule} --keep-output`, after which the "
            "sinks keep their rows and also get the rows of the same input again"
        )


def _forbidden(old: Rule, new: Rule) -> list[tuple[str, bool]]:
    remain = {sink.address for sink in old.sinks} <= {sink.address for sink in new.sinks}
    same_sql = old.sql == new.sql or not (_is_stateful(old) or _is_stateful(new))
    return [
        ("streams", list(old.streams) != list(new.streams) or _streams(old) != _streams(new)),
        ("lookups", _lookups(old) != _lookups(new) and (_is_stateful(old) or _is_stateful(new))),
        ("sql", not same_sql or (old.process is None) != (new.process is None)),
        *(_process(old.process, new.process) if old.process and new.process else ()),
        (
            "windows or max_rows_per_window",
            _folding(old) != _folding(new) and _has_slices(old) != _has_slices(new),
        ),
        ("rebuild", old.rebuild != new.rebuild),
        ("late (amend)", old.amend_us != new.amend_us),
        ("qos", old.qos != new.qos or (remain and _sink_qos(old) != _sink_qos(new, only=old))),
        ("timezone", old.timezone != new.timezone),
        ("spark.conf spark.sql.ansi.enabled", old.ansi != new.ansi),
        ("sinks (one was removed)", not remain),
        ("key, newest or delete of a sink", remain and _merging(old) != _merging(new, only=old)),
        *(_sink_columns(old, new) if remain else ()),
    ]


def _is_stateful(rule: Rule) -> bool:
    """Whether the SQL needs state. It may be a text that an earlier version took, and this one refuses."""
    try:
        return rule.query.stateful
    except SqlRefused:
        return True


def _folding(rule: Rule) -> tuple[object, bool]:
    """The settings that choose between the two kinds of state that windows can have."""
    return rule.windows, rule.max_rows_per_window is None


def _has_slices(rule: Rule) -> bool:
    """Whether its windows are kept by slices, also those of a text that only an earlier version kept so."""
    try:
        return rule.slices is not None
    except SqlRefused:
        return True


def _process(old: Process, new: Process) -> Iterator[tuple[str, bool]]:
    yield "key", old.key != new.key
    yield "output of the class", old.output != new.output
    for name in old.state.keys() & new.state.keys():
        for column in misfits(columns_of(old.state[name]), columns_of(new.state[name])):
            yield f"state[{name!r}] {column}", True


def misfits(old: Sequence[Column], new: Sequence[Column]) -> Iterator[str]:
    """The columns of `old` whose values `new` cannot take: `NAME from TYPE to TYPE`, or to a name in another case.

    A table cannot have both names.
    """
    wanted = {column.name.lower(): column for column in new}
    for column, other in ((one, wanted[one.name.lower()]) for one in old if one.name.lower() in wanted):
        if column.name != other.name:
            yield f"{column.name} to {other.name}, which only differs in upper and lower case"
        elif not fits(column.type, other.type):
            yield f"{column.name} from {column.type} to {other.type}"


def _streams(rule: Rule) -> list[object]:
    """The parts of the streams on which progress depends.

    `start` matters for the first epoch only, and a table is known by its id. Expectations and `max_ahead` apply to new
    rows; folded ones stay folded, and dead ones dead. `on_rewrite` applies to the next commit that removes rows, `keep`
    of a landing to the next upkeep. The text of a class may change, for example to mend it; the digests notice if it
    gives other rows again. So may schemas in files, of which others come as the topic's writers change.
    """
    whole = ("start", "address", "rule", "sink", "qos", "expect", "on_rewrite", "max_ahead_us")
    left_out: dict[str, Any] = {**dict.fromkeys(whole, True), "options": {CODE, "avro_schema"}, "landing": {"keep_us"}}
    return [stream.model_dump(exclude=left_out) for stream in rule.streams.values()]


def _lookups(rule: Rule) -> dict[str, bool]:
    """The parts of lookup tables on which results depend, without addresses: an intent names table and version."""
    return {name: lookup.history for name, lookup in rule.lookups.items()}


def _sink_qos(rule: Rule, only: Rule | None = None) -> dict[str, int | None]:
    return {address: sink.qos for address, sink in _known_sinks(rule, only).items()}


def _merging(rule: Rule, only: Rule | None = None) -> dict[str, object]:
    """How results are merged into the sinks; column names are case-insensitive."""
    return {
        address: ({name.lower() for name in sink.key}, (sink.newest or "").lower(), sink.delete)
        for address, sink in _known_sinks(rule, only).items()
    }


def _sink_columns(old: Rule, new: Rule) -> Iterator[tuple[str, bool]]:
    """Changes in what sinks take of the results; existing rows were taken by the old rule."""
    pairs = [(sink, _known_sinks(new, only=old)[address]) for address, sink in _known_sinks(old, None).items()]
    yield "kind of a sink", any(one.kind != other.kind for one, other in pairs)
    yield "format of a sink", any(_format(one) not in (None, _format(other)) for one, other in pairs)
    yield "where of a sink", any(one.where != other.where for one, other in pairs)
    yield "columns of a sink", any(_lower(one.columns) != _lower(_still(one, other)) for one, other in pairs)
    yield "partition_by of a sink", any(_lower(one.partition_by) != _lower(other.partition_by) for one, other in pairs)
    yield "epoch_columns of a sink", any(one.epoch_columns != other.epoch_columns for one, other in pairs)


def _format(sink: Sink) -> str | None:
    """How a target has its rows. None: it has one way alone, or an older version has not recorded it."""
    found: str | None = sink.options.get("format")
    return found


def _still(old: Sink, new: Sink) -> tuple[str, ...]:
    """The sink's current columns without those added at the end, if it adds columns."""
    return new.columns[: len(old.columns)] if new.adds_columns and old.columns else new.columns


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _known_sinks(rule: Rule, only: Rule | None) -> dict[str, Sink]:
    """The sinks by address; only those that `only` also has."""
    wanted = {sink.address for sink in (only or rule).sinks}
    return {str(sink.address): sink for sink in rule.sinks if sink.address in wanted}
