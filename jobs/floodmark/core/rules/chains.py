"""Resolves streams that are sinks of other rules of the same folder, named by rule.

Of such a rule's file only sinks, streams and qos are read: errors elsewhere in it do not block this rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from floodmark.core.rules.file.sinks import WrittenSink
from floodmark.core.rules.installation import over_installation
from floodmark.core.rules.model import Rule
from floodmark.core.text.addresses import identity
from floodmark.core.text.defaults import FILES, merged, read_defaults
from floodmark.core.text.problems import Problems, describe_detail, read_source, unknown
from floodmark.core.text.substitution import substituted
from floodmark.core.text.tablenames import last_part
from floodmark.errors import RuleInvalid

SUFFIXES = (".yaml", ".yml")
_REPLACED = (
    "expected a rule that appends to its sinks, because rows that each run replaces cannot be read incrementally"
)
_LOOK_UP = (
    "read its table as a lookup table, `lookups: {{NAME: {{delta: {table}}}}}`, or let each run rebuild this rule, "
    "too (`epoch: none`, `rebuild: true`)"
)


@dataclass(frozen=True)
class ChainedTable:
    """The table behind a sink's name. `qos`: the lowest of the rules and sinks on the way to it."""

    address: str
    qos: int


@dataclass(frozen=True)
class _Other:
    """The relevant parts of another rule's file. `reads`: the rules that its streams name."""

    sinks: list[WrittenSink]
    qos: int
    reads: list[str]
    rebuild: bool = False


def find_sink(
    folder: Path, env: Mapping[str, str], reader: str, rule: str, sink: str | None, changes: bool = False
) -> ChainedTable:
    """The sink of `rule` that `reader` reads: the one named `sink`; None: the only table that it writes.

    changes: the reader's input may be rows that change: it reads all again in each run, or corrects. Raises ValueError
    that says what was expected and what was found.
    """
    if rule == reader:
        raise ValueError(f"expected another rule than this one, found {rule}")
    other = _other(folder, env, rule)
    above = _above(folder, env, reader, rule, other)
    chosen = _chosen(rule, other.sinks, sink)
    if other.rebuild and not changes:
        raise ValueError(f"{_REPLACED}, found {rule} (`rebuild: true`): {_LOOK_UP.format(table=chosen.table)}")
    if chosen.key and not changes:
        raise ValueError(
            "expected a sink to which rows are only appended, because rows that change later cannot be read "
            f"incrementally; found {name_of(chosen)} of rule {rule}, which is upserted by key "
            f"({', '.join(chosen.key)}): read it as a lookup table instead, `lookups: {{NAME: {{delta: "
            f"{chosen.table}}}}}`, follow the changes with `on_rewrite: correct` at the stream, or give rule {rule} a "
            "sink without `key`"
        )
    own = other.qos if chosen.qos is None else chosen.qos
    return ChainedTable(str(chosen.table), min([own, *(one.qos for one in above)]))


def name_of(sink: WrittenSink) -> str:
    """A sink's own name, else the last part of its address."""
    return sink.name or (last_part(sink.table) if sink.table else "console")


def _chosen(rule: str, sinks: Sequence[WrittenSink], name: str | None) -> WrittenSink:
    tables = {name_of(sink): sink for sink in sinks if sink.table}
    many = sum(sink.table is not None for sink in sinks)
    if not many:
        raise ValueError(f"expected a rule with a sink that is a table, found none in rule {rule}")
    if name is None and many > 1:
        raise ValueError(f"expected `sink: NAME` next to it, because rule {rule} has several: {', '.join(tables)}")
    if name is None:
        return next(iter(tables.values()))
    if name not in tables:
        raise ValueError(f"{unknown(f'sink of rule {rule}', name, list(tables))}; sinks there: {', '.join(tables)}")
    if sum(name_of(sink) == name for sink in sinks) > 1:
        raise ValueError(f"expected one sink of rule {rule} that is called {name}, found several: give them a `name`")
    return tables[name]


def _above(folder: Path, env: Mapping[str, str], reader: str, rule: str, other: _Other) -> list[_Other]:
    """The rules that `other`, the rule named `rule`, reads by name, directly or indirectly.

    It leaves out rules that cannot be read; those report their own errors. Raises ValueError for a cycle to `reader`.
    """
    ways: dict[str, tuple[str, ...]] = {rule: (reader, rule)}
    waiting, found = [(rule, other)], list[_Other]()
    while waiting:
        name, at = waiting.pop()
        for one in (one for one in at.reads if one not in ways):
            ways[one] = (*ways[name], one)
            if one == reader:
                raise ValueError(
                    f"expected no cycle, found {' reads '.join(ways[one])}: each would wait for the other; remove "
                    "one of these streams"
                )
            try:
                further = _other(folder, env, one)
            except ValueError:
                continue
            found.append(further)
            waiting.append((one, further))
    return found


def _other(folder: Path, env: Mapping[str, str], rule: str) -> _Other:
    paths = [folder / f"{rule}{suffix}" for suffix in SUFFIXES]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        names = sorted(one.stem for one in folder.iterdir() if one.suffix in SUFFIXES and one.name not in FILES)
        raise ValueError(f"{unknown('rule', rule, names)}; a rule of this folder, {folder}, can be read by its name")
    try:
        return _read(path, env)
    except RuleInvalid as fault:
        raise ValueError(f"expected a rule whose sinks can be read, found {rule}, which cannot: {fault}") from None


def _read(path: Path, env: Mapping[str, str]) -> _Other:
    own, defaults = _source(path, _stamp(path)), read_defaults(path.parent)
    sources = [own] if defaults is None else [own, defaults]
    problems, its_own = Problems(*sources), Problems(*sources)
    text = merged(own.tree.value, defaults.tree.value if defaults else {})
    sinks = _sinks(substituted(text.get("sinks"), env, ("sinks",), problems), problems)
    problems.raise_any()
    streams, qos = (substituted(text.get(key), env, (key,), its_own) for key in ("streams", "qos"))
    found = streams.values() if isinstance(streams, dict) else ()
    named = [stream.get("rule") for stream in found if isinstance(stream, dict)]
    reads = [one for one in named if isinstance(one, str)]
    return _Other(sinks, {"0": 0, "1": 1}.get(str(qos).strip(), 2), reads, _is_rebuilt(text, env))


def _is_rebuilt(text: Mapping[str, Any], env: Mapping[str, str]) -> bool:
    """Whether each run of the rule replaces everything in its sinks."""
    try:
        found = over_installation(text, env)
    except RuleInvalid:  # reported for every rule
        return False
    return str(found.get("rebuild")).lower() == "true"


def _sinks(written: Any, problems: Problems) -> list[WrittenSink]:
    found = []
    for i, sink in enumerate(written if isinstance(written, list) else ()):
        try:
            found.append(WrittenSink.model_validate(sink))
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                problems.add(("sinks", i), describe_detail(detail))
    return found


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:  # a link that leads nowhere: reading reports it
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=2000)  # a rule that many rules read is parsed once
def _source(path: Path, stamp: tuple[int, ...]) -> Any:
    return read_source(path, "a rule")


def upstream(rules: Iterable[Rule]) -> dict[str, set[str]]:
    """For each rule the others that write what its streams read, whether it names them or their tables."""
    rules = list(rules)
    writers = {identity(sink.address): rule.rule for rule in rules for sink in rule.sinks if sink.address}
    found = {rule.rule: {writers.get(identity(stream.address)) for stream in rule.streams.values()} for rule in rules}
    return {name: {one for one in reads if one is not None and one != name} for name, reads in found.items()}


def in_order(rules: Sequence[Rule]) -> list[Rule]:
    """The rules, each after those of them that it reads; in a cycle any rule may be first."""
    reads = upstream(rules)
    depth: dict[str, int] = {}

    def level(name: str, seen: tuple[str, ...]) -> int:
        if name not in depth:
            above = [level(one, (*seen, name)) for one in sorted(reads[name]) if one not in seen]
            depth[name] = 1 + max(above, default=-1)
        return depth[name]

    return sorted(rules, key=lambda rule: level(rule.rule, ()))
