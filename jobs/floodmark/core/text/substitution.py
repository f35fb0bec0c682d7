"""Replaces `${NAME}` and `${NAME:-default}` in the texts of a rule file by the values of variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from floodmark.core.text.problems import Problems
from floodmark.core.text.secrets import secret_variable
from floodmark.core.text.yamltree import Path as Field

_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[^}:]*)(?P<default>:-(?P<value>[^}]*))?\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def substituted(value: Any, env: Mapping[str, str], field: Field, problems: Problems) -> Any:
    """`value` with every `${NAME}` in its texts replaced (not in keys)."""
    if isinstance(value, dict):
        return {key: substituted(child, env, (*field, key), problems) for key, child in value.items()}
    if isinstance(value, list):
        return [substituted(child, env, (*field, i), problems) for i, child in enumerate(value)]
    return _filled_in(value, env, field, problems) if isinstance(value, str) else value


def _filled_in(text: str, env: Mapping[str, str], field: Field, problems: Problems) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match.group() == "$${":
            return "${"
        name = match["name"]
        if not name or not _NAME.fullmatch(name):
            problems.add(
                field, f"expected ${{NAME}} or ${{NAME:-default}}, found {match.group()}; $${{ is a literal ${{"
            )
        elif "${" in (match["value"] or ""):
            problems.add(field, f"expected a default that contains no variables, found {match.group()}")
        elif (secret := secret_variable(name, env)) is not None:
            problems.add(field, secret)
        elif name in env:
            return env[name]
        elif match["default"] is None:
            hint = f"set it in the environment, or give it a default: ${{{name}:-...}}"
            problems.add(field, f"the variable {name} is not set; {hint}")
        return match["value"] or ""

    return _VARIABLE.sub(replaced, text)
