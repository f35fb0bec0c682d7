"""Selects the rules that a command works on."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError, Refused, RuleInvalid, legible

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Checked, Rule


@dataclass(frozen=True)
class Rules:
    """A folder of rule files: the valid rules by name, and the errors of the others by file name."""

    folder: Path
    good: dict[str, Rule]
    bad: dict[str, FloodmarkError]

    def names(self) -> list[str]:
        return sorted({*self.good, *(Path(file).stem for file in self.bad)})

    def fault(self, name: str) -> FloodmarkError:
        """Why there is no rule of this name."""
        found = next((fault for file, fault in self.bad.items() if Path(file).stem == name), None)
        return found or self._unknown(name)

    def _unknown(self, name: str) -> Refused:
        near = difflib.get_close_matches(Path(name).stem, self.names(), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        there = ", ".join(self.names()) or "none (`floodmark init` writes a first one)"
        return Refused(f"no rule {name!r} in {self.folder}: {hint}rules there: {there}")


def not_run(root: Path, name: str) -> Refused:
    """The rule `name` has no ledger below the home `root`. Raises LedgerBroken if it had one."""
    from floodmark.ledger.home import Home, check_not_lost
    from floodmark.views.homes import homes

    check_not_lost(Home(root, name))
    near = difflib.get_close_matches(name, there := homes(root), n=1)
    hint = f"did you mean {near[0]!r}? " if near and near[0] != name else ""
    return Refused(
        f"rule {name} has not run yet: expected a ledger at {Home(root, name).ledger}, found none: {hint}rules that "
        f"have run there: {', '.join(there) or 'none'}. "
        f"`floodmark run {name}` starts it; --home names another folder"
    )


@dataclass
class Selection:
    """The rules that a command works on, and by name the errors of selected rules that can't be used.

    `by_name`: each was selected by its name, not with all or by a tag.
    """

    rules: list[Rule] = field(default_factory=list)
    faults: dict[str, FloodmarkError] = field(default_factory=dict)
    by_name: bool = False


def load_folder(folder: Path, checked: Checked | None = None) -> Rules:
    """Read every rule file of a folder. A missing folder is refused; a bad file is not."""
    from floodmark.core.rules.rule import load_rules

    if not folder.is_dir():
        raise Refused(
            f"expected a folder of rule files at {folder}, found none: name it with --rules or FLOODMARK_RULES"
        )
    good, bad = load_rules(folder, os.environ, checked)
    return Rules(folder, good, {str(file): as_fault(fault) for file, fault in bad.items()})


def as_fault(fault: object) -> FloodmarkError:
    return fault if isinstance(fault, FloodmarkError) else RuleInvalid(str(fault))


def rule_named(folder: Path, name: str) -> Rule:
    """The rule of this name, or the reason why there is none."""
    rules = load_folder(folder)
    if name not in rules.good:
        raise rules.fault(name)
    return rules.good[name]


def rules_named(folder: Path, names: list[str], checked: Checked | None = None) -> Selection:
    """Rules by name, each once; an error in one doesn't affect the others."""
    rules = load_folder(folder, checked)
    wanted = list(dict.fromkeys(names))
    return Selection(
        [rules.good[name] for name in wanted if name in rules.good],
        {name: rules.fault(name) for name in wanted if name not in rules.good},
        by_name=True,
    )


def all_rules(folder: Path, checked: Checked | None = None) -> Selection:
    """All rules of the folder; a bad file is a fault. Raises Refused if there is no rule file."""
    rules = load_folder(folder, checked)
    if not rules.good and not rules.bad:
        raise no_rule_file(folder)
    return Selection([rules.good[name] for name in sorted(rules.good)], {Path(f).stem: e for f, e in rules.bad.items()})


def rules_tagged(folder: Path, tag: str, checked: Checked | None = None) -> Selection:
    """Rules that carry a tag. A bad file that has the tag's text is a fault: it may carry the tag."""
    found = load_folder(folder, checked)
    rules = [found.good[name] for name in sorted(found.good) if tag in found.good[name].airflow.tags]
    faults = {Path(file).stem: fault for file, fault in found.bad.items() if _has(folder, file, tag)}
    if not rules and not faults:
        tags = sorted({tag for rule in found.good.values() for tag in rule.airflow.tags})
        raise Refused(
            f"no rule has the tag {tag!r} (`airflow: {{tags: [...]}}`); tags found: {', '.join(tags) or 'none'}"
        )
    return Selection(rules, faults)


def _has(folder: Path, file: str, text: str) -> bool:
    """Whether a file of the folder, or the one with defaults for all, has this text. A file may be unreadable."""
    from floodmark.core.rules.rule import rule_paths
    from floodmark.core.text.defaults import FILES

    paths = [path for path in rule_paths(folder) if legible(path.name) == file]
    paths += [path for name in FILES if (path := folder / name).is_file()]
    try:
        return any(text in path.read_text(errors="replace") for path in paths)
    except OSError:
        return True


def no_rule_file(folder: Path) -> Refused:
    return Refused(f"no rule file (*.yaml) in {folder}: `floodmark init` writes a first one")
