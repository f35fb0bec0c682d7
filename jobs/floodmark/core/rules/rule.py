"""Loads rules from files and checks them completely; reports every problem with its place. Also exports the models."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from floodmark.core.rules import chains
from floodmark.core.rules.checks.epochs import check_epoch
from floodmark.core.rules.checks.nesting import nested_tables
from floodmark.core.rules.checks.rule import check
from floodmark.core.rules.environments import variables
from floodmark.core.rules.file.epochs import WrittenCleanUp, WrittenEpoch
from floodmark.core.rules.file.kindkeys import KIND
from floodmark.core.rules.file.rule import Place, WrittenAmend, WrittenRule
from floodmark.core.rules.file.schedule import WrittenAssets, WrittenFreshness
from floodmark.core.rules.file.sinks import LATER_SINK_KEYS, WrittenOutbox, WrittenSink
from floodmark.core.rules.file.spark import WrittenAirflow, WrittenSpark
from floodmark.core.rules.file.streams import (
    LATER_STREAM_KEYS,
    WrittenDistinct,
    WrittenEventTime,
    WrittenExpectation,
    WrittenLanding,
    WrittenLookup,
    WrittenStart,
    WrittenStream,
    source_keys,
)
from floodmark.core.rules.groups import group_conflicts
from floodmark.core.rules.installation import blame, is_spare, over_installation
from floodmark.core.rules.kinds import SINKS, SOURCES, sink_kind, source_kind
from floodmark.core.rules.model import (
    AirflowSettings,
    AssetSchedule,
    Distinct,
    EpochLimits,
    EventTime,
    Expectation,
    Freshness,
    Lookup,
    Process,
    Rule,
    Sink,
    SparkSettings,
    StartAt,
    Stream,
    canonical,
)
from floodmark.core.rules.words import with_words
from floodmark.core.text.addresses import identity
from floodmark.core.text.defaults import FILES, merged, read_defaults
from floodmark.core.text.problems import Problems, Source, describe_detail, field_of, read_source, unknown
from floodmark.core.text.substitution import substituted
from floodmark.core.text.yamltree import Path as Field
from floodmark.errors import FloodmarkError, RuleInvalid, legible

__all__ = [
    "AirflowSettings",
    "AssetSchedule",
    "Distinct",
    "EpochLimits",
    "EventTime",
    "Expectation",
    "Freshness",
    "Lookup",
    "Process",
    "Rule",
    "Sink",
    "SparkSettings",
    "StartAt",
    "Stream",
    "json_schema",
    "load_rule",
    "load_rules",
    "read_rule",
    "schema_text",
]

SUFFIXES = chains.SUFFIXES
RULE = "a rule (`rule: NAME`, `streams: ...`)"

Checked = Callable[[Rule], bool]  # whether a rule with this same text has passed the checks before


def load_rule(path: Path, env: Mapping[str, str], checked: Checked | None = None) -> Rule:
    """The rule in the file at `path`, over the folder's defaults, with `${NAME}` taken from `env`.

    If `env` names an environment, that environment's values take precedence. Raises RuleInvalid with one line for each
    problem, `FILE:LINE: field: expected ..., found ...`.
    """
    sources = written_in(path)
    env, text = variables(path.parent, env), reduce(merged, (source.tree.value for source in sources))
    problems = Problems(*sources, note=partial(blame, text, env))
    digest = hashlib.sha256(canonical(text).encode()).hexdigest()
    value = substituted(text, env, (), problems)
    problems.raise_any()
    value = over_installation(value, env)
    written = _written(value, path, problems)
    process = _process(written, path.parent, env, problems)
    if process is not None:
        digest = hashlib.sha256(f"{digest}{process.source}".encode()).hexdigest()
    code = _code(written, path.parent, env, problems)
    if code:
        texts = {str(name): text for (_, name), text in code.items()}
        digest = hashlib.sha256(f"{digest}{canonical(texts)}".encode()).hexdigest()
    chained = _chained(written, path.parent, env, problems)
    rule = written.resolved(digest, process, chained, code)
    spare = [field for field, _ in check_epoch(rule) if is_spare(field, text, env)]
    if spare:  # no stream can have them, and `checked` is asked for the text that the ledger has
        written, spare = written.without(spare), []
        rule = written.resolved(digest, process, chained, code)
    for field, problem in () if checked and checked(rule) else check(rule):
        if is_spare(field, text, env):
            spare.append(field)
        else:
            problems.add(field, problem)
    problems.raise_any()
    return written.without(spare).resolved(digest, process, chained, code) if spare else rule


def read_rule(path: Path, env: Mapping[str, str], checked: Checked | None = None) -> Rule | FloodmarkError:
    """The same, or the error; never raises, so that other rules are not affected."""
    try:
        return load_rule(path, env, checked)
    except FloodmarkError as fault:
        return fault
    except Exception as fault:  # anything that no check foresaw
        return RuleInvalid(f"{path}: cannot be read: {type(fault).__name__}: {fault}")


def written_in(path: Path) -> list[Source]:
    """The rule's file as written, and the folder's defaults, if it has any. Raises RuleInvalid."""
    own, defaults = read_source(path, RULE), read_defaults(path.parent)
    return [own] if defaults is None else [own, defaults]


def rule_paths(folder: Path) -> list[Path]:
    """The rule files of a folder, without hidden files and the defaults."""
    return sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES and p.name[0] != "." and p.name not in FILES)


def _process(written: WrittenRule, folder: Path, env: Mapping[str, str], problems: Problems) -> Process | None:
    """What the rule's class declares, from the text of its module in `folder` or on the Python path."""
    if written.process is None:
        return None
    from floodmark.core.process.declaration import check_allowed, declared, text_of_module

    module, _, name = written.process.partition(":")
    try:
        check_allowed(module, env)
        source = text_of_module(module, folder, env)
        found = declared(source, f"{module.replace('.', '/')}.py", name)
    except (ValueError, OSError) as fault:  # a UnicodeDecodeError is a ValueError
        problems.add(("process",), str(fault))
        problems.raise_any()
        raise
    return Process(module=module, name=name, key=tuple(written.key or ()), source=source, **vars(found))


def _code(written: WrittenRule, folder: Path, env: Mapping[str, str], problems: Problems) -> dict[Place, str]:
    """The text of the module of each stream and sink that is a class, and of other files that a stream names."""
    found = dict[Place, str]()
    for place, kind, key, read in _classes(written):
        try:
            text = read(folder, env)
        except (ValueError, OSError) as fault:  # a UnicodeDecodeError is a ValueError
            problems.add((*place, kind, key), str(fault))
        else:
            found |= {} if text is None else {place: text}
    problems.raise_any()
    return found


def _classes(written: WrittenRule) -> Iterator[tuple[Place, str, str, Callable[..., str | None]]]:
    """Streams and sinks whose kind has files: their place, kind and the key that names them, and how to read them."""
    for name, stream in written.streams.items():
        for kind, said in stream.kind.items():
            if (found := source_kind(kind)).code is not None:
                yield ("streams", name), kind, found.code_key, partial(found.code, said)
    for i, sink in enumerate(written.sinks):
        for kind, said in sink.kind.items():
            if (read := sink_kind(kind).code) is not None:
                yield ("sinks", i), kind, "class", partial(read, said)


def _chained(
    written: WrittenRule, folder: Path, env: Mapping[str, str], problems: Problems
) -> dict[str, tuple[str, int]]:
    """Address and qos of the streams that are other rules' sinks, from their files in `folder`."""
    found = {}
    for name, stream in written.streams.items():
        if stream.rule is None:
            continue
        changes = written.rebuild or stream.changes or stream.on_rewrite == "correct"
        try:
            sink = chains.find_sink(folder, env, written.rule, stream.rule, stream.sink, changes)
        except ValueError as fault:
            problems.add(("streams", name, "rule"), str(fault))
        else:
            found[name] = (sink.address, sink.qos)
    problems.raise_any()
    return found


def load_rules(
    folder: Path, env: Mapping[str, str], checked: Checked | None = None
) -> tuple[dict[str, Rule], dict[str, FloodmarkError]]:
    """All rules in a folder by name, and the errors of the others by file name.

    If several rules have one name or one sink, all of them are refused, because the owner is unclear. A rule that does
    not pass the checks owns nothing.
    """
    found: dict[Path, Rule] = {}
    errors: dict[str, FloodmarkError] = {}
    for path in rule_paths(folder):
        read = read_rule(path, env, checked)
        if isinstance(read, Rule):
            found[path] = read
        else:
            errors[legible(path.name)] = read
    clashes = conflicts(found)
    if clashes and checked is not None:  # a rule that was not checked may be one that owns nothing
        return load_rules(folder, env)
    errors.update({path.name: fault for path, fault in clashes.items()})
    return {rule.rule: rule for path, rule in found.items() if path not in clashes}, errors


def json_schema() -> dict[str, Any]:
    """JSON Schema of a rule file, for editors; `rule.schema.json` beside this file holds it (a test compares them)."""
    schema = with_words(WrittenRule.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text() -> str:
    """The text of `rule.schema.json`.

    To renew it: `python -c "from floodmark.core.rules.rule import *; print(schema_text(), end='')"`.
    """
    return json.dumps(json_schema(), indent=2) + "\n"


def conflicts(found: Mapping[Path, Rule]) -> dict[Path, FloodmarkError]:
    """The files whose rules conflict: two with one name or one sink, groups that disagree, or nested tables."""
    claims: dict[tuple[str, str], list[Path]] = {}
    for path, rule in found.items():
        sinks = {("sink", identity(sink.address)) for sink in rule.sinks if sink.address}
        for claim in {("rule", rule.rule), *sinks}:
            claims.setdefault(claim, []).append(path)
    faults: dict[Path, FloodmarkError] = {
        path: RuleInvalid(f"{path}: {problem}")
        for path, problem in (group_conflicts(found) | nested_tables(found)).items()
    }
    for (kind, what), paths in claims.items():
        for path, other in ((path, other) for path in paths for other in paths if path != other):
            faults[path] = RuleInvalid(f"{path}: {_conflict(kind, what, other, found[other])}")
    return faults


def _conflict(kind: str, what: str, other: Path, rule: Rule) -> str:
    if kind == "rule":
        return f"rule: a rule named {what} is in {other.name}, too: expected one file for each; remove one of them"
    return f"sinks: {what} is a sink of rule {rule.rule}, too; a sink belongs to one rule: give each a table of its own"


def _written(value: dict[str, Any], path: Path, problems: Problems) -> WrittenRule:
    _name_later_keys(value, problems)
    written = None
    try:
        written = WrittenRule.model_validate(value)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            _add_detail(detail, problems)
    if isinstance(value.get("rule"), str) and value["rule"] != path.stem:
        problems.add(("rule",), f"expected the file's name, {path.stem!r}, found {value['rule']!r}: make them the same")
    problems.raise_any()
    assert written is not None
    return written


def _name_later_keys(value: dict[str, Any], problems: Problems) -> None:
    """Remove, and report, keys that are known but not supported yet."""
    for field, mapping, later in _places_of_later_keys(value):
        for key in [key for key in mapping if key in later]:
            del mapping[key]
            problems.add((*field, key), "is not supported yet")


def _places_of_later_keys(value: dict[str, Any]) -> Iterator[tuple[Field, dict[str, Any], tuple[str, ...]]]:
    streams, sinks = value.get("streams"), value.get("sinks")
    for name, stream in streams.items() if isinstance(streams, dict) else ():
        if isinstance(stream, dict):
            yield ("streams", name), stream, LATER_STREAM_KEYS
    for i, sink in enumerate(sinks if isinstance(sinks, list) else ()):
        if isinstance(sink, dict):
            yield ("sinks", i), sink, LATER_SINK_KEYS


def _add_detail(detail: ErrorDetails, problems: Problems) -> None:
    field = field_of(detail["loc"], problems)
    if detail["type"] == "extra_forbidden":
        problems.add(field, _unknown_key(str(field[-1]), field[:-1]))
    elif detail["type"] == "missing":
        problems.add(field, _missing(field))
    else:
        problems.add(field, describe_detail(detail))


def _unknown_key(key: str, parent: Field) -> str:
    if key == "expect" and parent[:1] == ("sinks",):
        return "expect: for results, it is a key of the rule, next to `sql`, for all of its sinks"
    if not re.fullmatch(r"[\w.-]+", key):
        return f"unknown key {key!r}: inside of {{…}}, a comma ends a value; put a value with a comma in quotes"
    known = _known_keys(parent)
    if len(parent) == 2 and parent[0] in ("streams", "sinks") and key not in known:
        kinds = source_keys() if parent[0] == "streams" else [*SINKS]
        near = difflib.get_close_matches(key, known, 1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"expected a kind of {parent[0][:-1]} ({', '.join(kinds)}) or one of the keys "
            + ", ".join(k for k in known if k not in kinds)
        )
        return f"unknown key {key!r}: {hint}"
    return unknown("key", key, known)


def _known_keys(parent: Field) -> list[str]:
    """The keys that the mapping at `parent` may have."""
    model: type[BaseModel] = WrittenRule
    nested: dict[str, type[BaseModel]] = {
        "streams": WrittenStream,
        "lookups": WrittenLookup,
        "sinks": WrittenSink,
        "epoch": WrittenEpoch,
        "cleanup": WrittenCleanUp,
        "outbox": WrittenOutbox,
        "spark": WrittenSpark,
        "airflow": WrittenAirflow,
        "schedule": WrittenAssets,
        "freshness": WrittenFreshness,
        "event_time": WrittenEventTime,
        "start": WrittenStart,
        "landing": WrittenLanding,
        "late": WrittenAmend,
        "distinct": WrittenDistinct,
        "expect": WrittenExpectation,
    }
    for part in parent:
        model = nested.get(str(part), model)
    if len(parent) > 2 and parent[0] == "streams" and parent[2] in SOURCES:
        model = source_kind(str(parent[2])).written
    if len(parent) > 2 and parent[0] == "sinks" and parent[2] in SINKS:
        model = sink_kind(str(parent[2])).written
    own = [field.alias or name for name, field in model.model_fields.items()]
    kinds = source_keys() if model is WrittenStream else SINKS if model is WrittenSink else ()
    return [*kinds, *(key for key in own if key != KIND and key not in kinds)]


def _missing(field: Field) -> str:
    return f"expected `{field[-1]}: ...`, found nothing"
