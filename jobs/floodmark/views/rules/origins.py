"""Find the origin of a rule's values: its file, the folder's defaults, a variable, or Floodmark itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from floodmark.core.rules.environments import environment, variables
from floodmark.core.rules.installation import variable_of
from floodmark.core.rules.rule import rule_paths, written_in
from floodmark.core.text.problems import Source
from floodmark.core.text.yamltree import Path as Field

VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")
BUILT_IN = "built-in"


class Origins:
    """Origins of the values of one rule in a folder."""

    def __init__(self, rule: str, folder: Path):
        path = next(path for path in rule_paths(folder) if path.stem == rule)
        self._sources = written_in(path)
        self._environment = environment(folder, os.environ)
        self._variables = variables(folder, os.environ)

    def of(self, field: Field, has_value: bool = True) -> tuple[str, str]:
        """`file`, `defaults`, `environment` or `default`; and its place, for people.

        has_value: False: not even the installation's variable has given the rule one.
        """
        source = next((one for one in self._sources if field in one.tree.places), None)
        if source is None:
            name = variable_of(field, self._variables) if has_value else None
            return ("default", BUILT_IN) if name is None else ("environment", f"{name} {self._variable(name)}")
        place = f"{source.path.name}:{source.tree.place(field).line}"
        names = [name for name in _named(_at(source, field)) if self._is_set(name)]
        if names:
            return "environment", "; ".join([place, *(f"{name} {self._variable(name)}" for name in names)])
        return ("file" if source is self._sources[0] else "defaults"), place

    def variables(self) -> dict[str, str]:
        """For each variable that the files name, where its value comes from (the value may be a secret)."""
        names = [name for source in self._sources for name in _named(source.tree.value)]
        return {name: self._variable(name) if self._is_set(name) else "its default" for name in names}

    def _is_set(self, name: str) -> bool:
        return name in os.environ or (self._environment is not None and name in self._environment.variables)

    def _variable(self, name: str) -> str:
        found = self._environment
        if found is not None and name in found.variables:
            return f"from {found.path.parent.name}/{found.path.name}:{found.lines[name]}"
        return "from the environment"


def _at(source: Source, field: Field) -> Any:
    value = source.tree.value
    for part in field:
        value = value[part]
    return value


def _named(value: Any) -> Iterator[str]:
    """Variables in the texts of a value."""
    if isinstance(value, str):
        yield from (match["name"] for match in VARIABLE.finditer(value))
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _named(child)
