"""Cache the rules of a folder: a file is read again only if it has changed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.core.process.declaration import file_of_module
from floodmark.core.rules.environments import file_of
from floodmark.core.rules.kinds import CODE, files_beside
from floodmark.core.rules.rule import Rule, conflicts, read_rule, rule_paths
from floodmark.core.text.defaults import FILES
from floodmark.errors import FloodmarkError, Refused, legible

Stamp = tuple[int | str, ...]
Read = Rule | FloodmarkError


@dataclass(frozen=True)
class Catalog:
    """The rules of a folder by name, and the errors of the other files by file name."""

    rules: dict[str, Rule] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


class RuleFiles:
    """Caches what was read from a folder's files, by their time and size before they were read."""

    def __init__(self, folder: Path, env: Mapping[str, str]):
        self._folder, self._env = folder, env
        self._kept: dict[Path, tuple[Stamp, Read]] = {}
        self._of_all: list[Stamp] = []
        self._one_at_a_time = threading.Lock()

    def catalog(self) -> Catalog:
        """All rules of the folder now. Raises Refused if there is no folder."""
        if not self._folder.is_dir():
            raise Refused(f"expected a folder of rule files at {self._folder}: name it with FLOODMARK_RULES")
        with self._one_at_a_time:
            self._forget_where_all_changed()
            paths = rule_paths(self._folder)
            every = tuple(part for path in paths for part in (path.name, *_stamp(path)))
            self._kept = {path: self._read(path, every) for path in paths}
            found = {path: read for path, (_, read) in self._kept.items()}
        good = {path: read for path, read in found.items() if isinstance(read, Rule)}
        bad = {path: read for path, read in found.items() if not isinstance(read, Rule)} | conflicts(good)
        rules = {rule.rule: rule for path, rule in good.items() if path not in bad}
        return Catalog(rules, {legible(path.name): str(fault) for path, fault in sorted(bad.items())})

    def _forget_where_all_changed(self) -> None:
        """Clear the cache if the folder's defaults or the environment's file changed: every rule depends on them."""
        environment = file_of(self._folder, self._env)
        stamps = [_stamp(self._folder / name) for name in FILES] + [_stamp(environment) if environment else ()]
        if stamps != self._of_all:
            self._of_all, self._kept = stamps, {}

    def _read(self, path: Path, every: Stamp) -> tuple[Stamp, Read]:
        """Take the stamp before reading: a file that changes while it is read is read again. every: of all files."""
        kept = self._kept.get(path)
        before = kept[1] if kept else None
        stamp = (*_stamp(path), *_others(path.parent, before, every))
        if kept and kept[0] == stamp and isinstance(before, Rule):  # any other file may cause a fault
            return kept
        return stamp, self._load(path, before)

    def _load(self, path: Path, before: Read | None) -> Read:
        """A rule that equals the cached one has passed the checks already, which take most of the time."""
        read = read_rule(path, self._env, lambda now: now == before)
        return before if isinstance(before, Rule) and read == before else read


def _others(folder: Path, read: Read | None, every: Stamp) -> Stamp:
    """The stamp of other files that a rule depends on: its class's module, schemas, and rules whose sinks it reads.

    What these promise depends on rules that they read in turn: all rule files count. every: the stamp of these.
    """
    if not isinstance(read, Rule):
        return ()
    chained = any(stream.rule for stream in read.streams.values())
    modules = [read.process.module] if read.process else []
    options = [one.options for one in read.streams.values()] + [one.options for one in read.sinks]
    modules += [str(said["named"]).partition(":")[0] for said in options if CODE in said and "named" in said]
    files = [folder / name for stream in read.streams.values() for name in files_beside(stream)]
    files += [file for file in (file_of_module(module, folder) for module in modules) if file]
    return (*(part for path in files for part in _stamp(path)), *(every if chained else ()))


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:  # the file is gone, or its link is broken: reading it raises the error
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
