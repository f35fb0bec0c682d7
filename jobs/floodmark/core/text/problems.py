"""Collects problems in files that people write, each with its place."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_core import ErrorDetails

from floodmark.core.text.files import read_plain
from floodmark.core.text.secrets import may_hold
from floodmark.core.text.yamltree import Path as Field
from floodmark.core.text.yamltree import Tree, YamlRefused, read_yaml
from floodmark.errors import RuleInvalid, SqlAt
from floodmark.redaction import redacted


@dataclass(frozen=True)
class Source:
    """A file and its contents."""

    path: Path
    tree: Tree


Note: TypeAlias = Callable[[Field, str], str]


class Problems:
    """Collects problems in files, each with its place.

    If there are several sources, a field that the first does not have is looked up in the next ones. note: what to add
    to a problem of a field.
    """

    def __init__(self, *sources: Source, note: Note | None = None) -> None:
        self.sources = sources
        self._note = note
        self.found: list[tuple[int, int, str]] = []

    def source(self, field: Field) -> Source:
        """The source that has most of the field's path; the first of several equal ones."""
        return max(self.sources, key=lambda source: _known(field, source.tree))

    def has(self, field: Field) -> bool:
        """Whether one of the files has the field."""
        return any(field in source.tree.places for source in self.sources)

    def add(self, field: Field, problem: str | SqlAt) -> None:
        source = self.source(field)
        line = source.tree.place(field).line
        if isinstance(problem, SqlAt):
            line, problem = _sql_place(source.tree, field, problem, line)
        elif self._note is not None:
            problem += self._note(field, problem)
        name = field_text(field)
        text = f"{source.path}:{line}: {name}: {problem}" if name else f"{source.path}:{line}: {problem}"
        self.found.append((self.sources.index(source), line, text))

    def raise_any(self) -> None:
        if self.found:
            raise RuleInvalid("\n".join(text for *_, text in sorted(self.found, key=lambda found: found[:2])))


def _known(field: Field, tree: Tree) -> int:
    """How many of the field's leading parts are in the file."""
    return max((length for length in range(1, len(field) + 1) if field[:length] in tree.places), default=0)


def _sql_place(tree: Tree, field: Field, error: SqlAt, line: int) -> tuple[int, str]:
    """The place in the file if the SQL is a literal block; otherwise the field's line, and the place within the SQL."""
    block = tree.blocks.get(field)
    if block is None:
        return line, str(error)
    place = block.place(error.line, error.column)
    return place.line, f"column {place.column}: {error.problem}"


def field_text(field: Field) -> str:
    """A field as people write it: streams.flights.where, sinks[0].delta."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in field]
    return "".join(parts).lstrip(".")


def read_source(path: Path, expected: str) -> Source:
    """The YAML mapping in a file; `expected`: what the file should contain, in words. Raises RuleInvalid."""
    try:
        text = read_plain(path, path.parent)
    except UnicodeDecodeError:
        raise RuleInvalid(f"{path}:1: expected UTF-8 text") from None
    except ValueError as error:
        raise RuleInvalid(f"{path}:1: {error}") from None
    except OSError as error:
        raise RuleInvalid(f"{path}: cannot be read: {error.strerror}") from None
    try:
        tree = read_yaml(text)
    except YamlRefused as error:
        raise RuleInvalid(f"{path}:{error.line}: column {error.column}: {error}") from None
    if not isinstance(tree.value, dict):
        raise RuleInvalid(f"{path}:1: expected {expected}, found {shown_value(tree.value)}")
    return Source(path, tree)


def field_of(loc: tuple[int | str, ...], problems: Problems) -> Field:
    """The field at pydantic's location, without the names of union members, which are not in the file."""
    field: Field = ()
    for i, part in enumerate(loc):
        if i == len(loc) - 1 or problems.has((*field, part)):
            field = (*field, part)
    return field


def describe_detail(detail: ErrorDetails) -> str:
    """The message for an error of pydantic: what was expected, and what was found."""
    if detail["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return f"expected a mapping (key: value), found {shown_value(detail['input'])}"
    if detail["type"].startswith("bool_"):
        return f"expected true or false, found {shown_value(detail['input'])}"
    message = str(detail.get("ctx", {}).get("error") or detail["msg"])
    if ", found " not in message and not message.startswith("setting "):
        message += f", found {shown_value(detail['input'])}"
    return redacted(message)


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """The message for a `name` that is not one of the known names."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known) or 'none'}"
    return f"unknown {what} {name!r}: {hint}"


def with_article(word: str) -> str:
    """The word with `a` or `an` before it."""
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def shown_value(value: Any) -> str:
    """A value as messages show it; for one that may be or contain a secret, only its kind."""
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    if isinstance(value, str) and may_hold(value):
        return "text that is not shown, because it may contain a secret"
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else f"{text[:57]}..."
