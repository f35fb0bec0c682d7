"""Handles groups: rules that share one schedule and one Spark application, and must agree on settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from floodmark.core.rules.file.schedule import UPSTREAM
from floodmark.core.rules.model import AssetSchedule, Rule, SparkSettings


def groups(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """The groups by name, each with its rules in the order of their names."""
    found: dict[str, list[Rule]] = {}
    for rule in sorted((rule for rule in rules if rule.group is not None), key=lambda rule: rule.rule):
        found.setdefault(str(rule.group), []).append(rule)
    return found


def shared(rules: Sequence[Rule]) -> SparkSettings:
    """The settings of one application for all these rules, with the largest memory and partitions that one asks for."""
    return SparkSettings(
        driver_memory=max((rule.spark.driver_memory for rule in rules), key=_bytes, default="1g"),
        shuffle_partitions=max((rule.spark.shuffle_partitions for rule in rules), default=4),
        conf={key: value for rule in rules for key, value in rule.spark.conf.items()},
    )


def _bytes(text: str) -> int:
    return int(text[:-1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[text[-1].lower()]


def group_conflicts(found: Mapping[Path, Rule]) -> dict[Path, str]:
    """The files whose rules conflict with their group, each with its value and a file that has another.

    The other rules of the group continue with the value of the majority; without a majority, none can.
    """
    problems: dict[Path, str] = {}
    for name in {rule.group for rule in found.values() if rule.group is not None}:
        group = {path: rule for path, rule in found.items() if rule.group == name}
        once = {path: _once(rule, group.values()) for path, rule in group.items()}
        for field in dict.fromkeys(field for values in once.values() for field in values):
            said = {path: values[field] for path, values in once.items() if field in values}
            for path, other in _minority(said).items():
                problems.setdefault(path, _problem(field, name, said[path], said[other], other))
    return problems


def schedule_of(rules: Collection[Rule]) -> str | AssetSchedule | None:
    """The schedule that the rules of a group have in common."""
    return next((rule.schedule for rule in rules if not _follows(rule, rules)), None)


def sources_of(rules: Collection[Rule]) -> dict[str, str]:
    """The sinks of rules outside of these that they read by rule name: address -> rule."""
    names = {rule.rule for rule in rules}
    streams = (stream for rule in rules for stream in rule.streams.values())
    return {stream.address: stream.rule for stream in streams if stream.rule is not None and stream.rule not in names}


def by_the_clock(rules: Sequence[Rule]) -> bool:
    """Whether a clock starts the next round of these rules, whatever the result of this one."""
    schedule = schedule_of(rules)
    return isinstance(schedule, str) and schedule not in (UPSTREAM, "@once")


def _follows(rule: Rule, rules: Collection[Rule]) -> bool:
    """Whether it runs only after other rules of the group; then it has no schedule of its own."""
    names = {one.rule for one in rules}
    return rule.schedule == UPSTREAM and all(stream.rule in (None, *names) for stream in rule.streams.values())


def _once(rule: Rule, group: Collection[Rule]) -> dict[str, str]:
    """The settings that one schedule and one application can have only once, by their place in the file."""
    given = rule.schedule
    schedule = json.dumps({"assets": sorted(given.assets)} if isinstance(given, AssetSchedule) else given)
    conf = {f"spark.conf.{key}": value for key, value in rule.spark.conf.items()}
    return {**({} if _follows(rule, group) else {"schedule": schedule}), "timezone": rule.timezone, **conf}


def _minority(values: Mapping[Path, str]) -> dict[Path, Path]:
    """The files that differ from the majority, each with the first file that differs from it."""
    ranking = Counter(values.values()).most_common(2)
    tied = len(ranking) == 2 and ranking[0][1] == ranking[1][1]
    return {
        path: next(other for other in values if values[other] != value and (tied or values[other] == ranking[0][0]))
        for path, value in values.items()
        if len(ranking) == 2 and (tied or value != ranking[0][0])
    }


def _problem(field: str, group: str, value: str, expected: str, other: Path) -> str:
    return (
        f"{field}: expected {expected}, as in {other.name}, because the rules of group {group} share one schedule "
        f"and one Spark application; found {value}: make them the same, or remove one rule from the group"
    )
