"""Loads environments: the same rules with other addresses, such as one for development beside production.

FLOODMARK_ENV names one. Its file, `env/NAME.env` beside the folder of rules, sets the values of `${VARIABLE}` in rule
files. It has a home and DAG ids of its own. Code that loads rules with variables that name an environment gets that
environment's rules, so all of Floodmark's processes see the same rules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.core.text.files import read_plain
from floodmark.errors import HomeUnfit, RuleInvalid

NAMED = "FLOODMARK_ENV"
HOME, MASTER = "FLOODMARK_HOME", "FLOODMARK_MASTER"
FOLDER, SUFFIX = "env", ".env"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


@dataclass(frozen=True)
class Environment:
    """The environment in the file at `path`: values of variables, and the line of each."""

    name: str
    path: Path
    variables: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


def environment(rules: Path, env: Mapping[str, str]) -> Environment | None:
    """The environment that `env` names, for the rules of a folder; None if it names none. Raises RuleInvalid."""
    path = file_of(rules, env)
    if path is None:
        return None
    if not _NAME.fullmatch(env[NAMED]):
        raise RuleInvalid(f"{NAMED}: expected a name of small letters, digits, _ and -, found {env[NAMED]!r}")
    return read_environment(path)


def file_of(rules: Path, env: Mapping[str, str]) -> Path | None:
    """The file of the environment that `env` names."""
    name = env.get(NAMED)
    return Path(os.path.normpath(rules / os.pardir), FOLDER, f"{name}{SUFFIX}") if name else None


def variables(rules: Path, env: Mapping[str, str]) -> Mapping[str, str]:
    """`env` with the values of the environment that it names; values from that file take precedence."""
    found = environment(rules, env)
    return env if found is None else {**env, **found.variables}


def home_of(rules: Path, env: Mapping[str, str], default: Path) -> Path:
    """The folder of ledgers and state: for an environment, a folder of its own, unless its file names another.

    That folder is below the home and has a name that no rule has. A home that is already this environment's is
    unchanged. Raises RuleInvalid and HomeUnfit.
    """
    found = environment(rules, env)
    if found is not None and HOME in found.variables:
        return Path(found.variables[HOME])
    home = folder_at(env.get(HOME) or default)
    if found is None:
        return home
    own = f"{FOLDER}-{found.name}"
    return home if home.name == own else home / own


def folder_at(home: str | Path) -> Path:
    """The folder of ledgers and state that a setting or an option names. Raises HomeUnfit."""
    why = no_folder(str(home))
    if why is not None:
        raise HomeUnfit(f"the home {str(home)!r} cannot be used: expected a folder, {why}")
    return Path(home)


def no_folder(text: str) -> str | None:
    """Why a text names another folder than it seems to, one of the working directory; None if it does not."""
    if not text:
        return "found nothing: name one, or leave the setting out"
    if text[0] in "~$":
        return f"found a path that begins with {text[0]}, which is not expanded: write the whole path"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text):
        return "found a URI: ledgers and state need a path of this machine's file system, such as a mounted one"
    return None


def prefix(env: Mapping[str, str]) -> str:
    """The prefix of DAG ids in the environment."""
    return f"{env[NAMED]}." if env.get(NAMED) else ""


def names(rules: Path) -> list[str]:
    """The environments that have a file."""
    return _names(Path(os.path.normpath(rules / os.pardir), FOLDER))


def _names(folder: Path) -> list[str]:
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path.stem for path in found if path.suffix == SUFFIX and _NAME.fullmatch(path.stem))


def within(env: Mapping[str, str], name: str | None) -> dict[str, str]:
    """A process's variables, switched to another environment."""
    others = {key: value for key, value in env.items() if key != NAMED}
    return others if name is None else {**others, NAMED: name}


def read_environment(path: Path) -> Environment:
    """The environment in a file of `NAME=value` lines. Raises RuleInvalid with one line for each problem."""
    try:
        text = read_plain(path, path.parent)
    except FileNotFoundError:
        there = ", ".join(_names(path.parent)) or "none"
        raise RuleInvalid(
            f"{path}: expected the file of environment {path.stem}, found none: write it, or name an existing one "
            f"({there})"
        ) from None
    except (OSError, ValueError) as error:
        raise RuleInvalid(f"{path}: expected lines of NAME=value: {error}") from None
    return _read(path, text.splitlines())


def _read(path: Path, lines: Iterable[str]) -> Environment:
    found, problems = Environment(path.stem, path), []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        problem = _no_assignment(line) if match is None else _unfit(match[1], match[2], found) or _remark(match[2])
        if match is None or problem is not None:
            problems.append(f"{path}:{number}: {problem}")
            continue
        found.variables[match[1]], found.lines[match[1]] = _unquoted(match[2]), number
    if problems:
        raise RuleInvalid("\n".join(problems))
    return found


def _no_assignment(line: str) -> str:
    """The message for a line that is no assignment; it does not repeat the line, which may contain a secret."""
    what = "a name with characters other than letters, digits and _" if "=" in line else "a line without ="
    return f"expected NAME=value, found {what}: write it so, or put # before a comment"


def _unfit(name: str, value: str, found: Environment) -> str | None:
    if name in found.variables:
        return f"expected each variable once; {name} is already in line {found.lines[name]}: remove one of them"
    if name.startswith("FLOODMARK_") and name not in (HOME, MASTER):
        return f"expected of Floodmark's own settings only {HOME} and {MASTER}, found {name}: set it in the environment"
    if name == MASTER and not _unquoted(value):
        return f"expected a Spark master as {MASTER}, found nothing: name one, or leave the line out"
    why = no_folder(_unquoted(value)) if name == HOME else None
    return why and f"expected a folder as {HOME}, {why}"


def _remark(value: str) -> str | None:
    """The message for an unquoted remark: only some tools end the value there, others add it to the address."""
    if re.search(r"\s#", value) and _unquoted(value) == value.strip():
        return (
            "expected quotes around a value with a space and #, found none: add them, or put the comment on the "
            "line above"
        )
    return None


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
