"""The rules of a folder for who asks again and again: a file is read anew only where it has changed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.core.chains import SUFFIXES
from floodmark.core.defaults import FILES
from floodmark.core.environments import file_of
from floodmark.core.rules import Rule, clashing, read_rule, rule_paths
from floodmark.errors import FloodmarkError, Refused, legible

Stamp = tuple[int, ...]
Read = Rule | FloodmarkError


@dataclass(frozen=True)
class Catalog:
    """The rules of a folder by name, and by file name what is wrong with the others."""

    rules: dict[str, Rule] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


class RuleFiles:
    """What a folder's files said when they were read, kept by the time and size that they had then."""

    def __init__(self, folder: Path, env: Mapping[str, str]):
        self._folder, self._env = folder, env
        self._kept: dict[Path, tuple[Stamp, Read]] = {}
        self._of_all: list[Stamp] = []
        self._one_at_a_time = threading.Lock()

    def catalog(self) -> Catalog:
        """All that is there now. Raises Refused where there is no folder."""
        if not self._folder.is_dir():
            raise Refused(f"expected a folder of rule files at {self._folder}: name it with FLOODMARK_RULES")
        with self._one_at_a_time:
            self._forget_where_all_changed()
            self._kept = {path: self._read(path) for path in rule_paths(self._folder)}
            found = {path: read for path, (_, read) in self._kept.items()}
        good = {path: read for path, read in found.items() if isinstance(read, Rule)}
        bad = {path: read for path, read in found.items() if not isinstance(read, Rule)} | clashing(good)
        rules = {rule.rule: rule for path, rule in good.items() if path not in bad}
        return Catalog(rules, {legible(path.name): str(fault) for path, fault in sorted(bad.items())})

    def _forget_where_all_changed(self) -> None:
        """Every rule hangs on the folder's defaults and on the file of the environment."""
        environment = file_of(self._folder, self._env)
        stamps = [_stamp(self._folder / name) for name in FILES] + [_stamp(environment) if environment else ()]
        if stamps != self._of_all:
            self._of_all, self._kept = stamps, {}

    def _read(self, path: Path) -> tuple[Stamp, Read]:
        stamp, kept = _stamp(path), self._kept.get(path)
        if kept and kept[0] == (*stamp, *_above(path.parent, kept[1])) and not _hangs_on_more(kept[1]):
            return kept
        read = self._load(path, kept[1] if kept else None)
        return (*stamp, *_above(path.parent, read)), read

    def _load(self, path: Path, before: Read | None) -> Read:
        """A rule that came out as it did before has passed the checks then, which take most of the time."""
        read = read_rule(path, self._env, lambda now: now == before)
        return before if isinstance(before, Rule) and read == before else read


def _hangs_on_more(read: Read) -> bool:
    """A class lies in another file, and a fault may: both may change by themselves."""
    return not isinstance(read, Rule) or read.process is not None


def _above(folder: Path, read: Read) -> Stamp:
    """Of the files of rules that it names, whose sinks it reads."""
    named = [stream.rule for stream in read.streams.values() if stream.rule] if isinstance(read, Rule) else []
    return tuple(part for name in named for suffix in SUFFIXES for part in _stamp(folder / f"{name}{suffix}"))


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:  # it went, or a link leads nowhere: reading it says so
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
