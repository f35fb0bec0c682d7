"""Load the test cases of rules, for pytest and for `floodmark test`."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from floodmark.core.cases.casefile import CaseFile, WrittenCase, case_files, read_cases
from floodmark.core.cases.validation import check_against
from floodmark.core.rules.rule import Rule, load_rules
from floodmark.errors import Refused

SCRATCH = ".test"  # in the home: a folder that is fit for a rule's home is fit for its copies, too


@dataclass(frozen=True)
class Case:
    """One case of a rule; `number` counts from 0 in its file."""

    rule: Rule
    file: CaseFile
    number: int

    @property
    def written(self) -> WrittenCase:
        return self.file.written.cases[self.number]

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file.path}:{self.file.line(self.number)}"

    def __str__(self) -> str:
        return f"{self.rule.rule}: {self.written.case}"


def cases_of(rule: Rule, path: Path) -> list[Case]:
    """The cases of a rule in its file. Raises RuleInvalid."""
    file = read_cases(path)
    check_against(file, rule)
    return [Case(rule, file, number) for number in range(len(file.written.cases))]


def cases(rules: str | Path = "rules", names: Collection[str] | None = None) -> list[Case]:
    """All cases of a folder of rules, or those of the named rules.

    Raises the error of a rule file or case file that cannot be used, and Refused if a rule has no cases.
    """
    folder = Path(rules)
    good, bad = load_rules(folder, os.environ)
    files = case_files(folder)
    found = []
    for name in files if names is None else names:
        if name not in good:
            raise next((fault for file, fault in bad.items() if Path(file).stem == name), no_rule(name, files, folder))
        if name not in files:
            raise no_cases(name, folder)
        found += cases_of(good[name], files[name])
    return found


def no_rule(name: str, files: dict[str, Path], folder: Path) -> Refused:
    """The error for cases, existing or requested, of a rule that does not exist."""
    return Refused(f"{files.get(name, name)}: expected the cases of a rule in {folder}, found no rule {name!r} there")


def no_cases(name: str, folder: Path) -> Refused:
    return Refused(f"rule {name}: expected test cases in {folder / 'tests' / f'{name}.yaml'}, found no such file")
