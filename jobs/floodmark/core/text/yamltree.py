"""Reads YAML as rule files use it: strictly, in a small subset, with the place of every value.

It is stricter than YAML 1.1: duplicate keys are errors; only true and false are booleans (``on``, ``yes``, ``no`` are
words); dates stay text; anchors, aliases, tags and further documents are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from floodmark.core.text.yamlquotes import Bare, bare_value, quoted
from floodmark.core.text.yamlwords import parser_message

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
MAX_VALUES = 20_000  # keys count, too; PyYAML takes a second for them, and one process reads all rules
_YAML = "tag:yaml.org,2002:"
_ODD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

Path: TypeAlias = tuple[str | int, ...]


class YamlRefused(ValueError):
    """The text is not YAML that a rule file may contain; ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(frozen=True)
class Place:
    """A position in the file; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Block:
    """The start of a literal block scalar (``|``): the file's line of its first line, and its indent in spaces."""

    first_line: int
    indent: int

    def place(self, line: int, column: int) -> Place:
        """The place in the file of a line and column of the block's text."""
        return Place(self.first_line + line - 1, self.indent + column)


@dataclass
class Tree:
    """A document: plain values (dict, list, str, int, float, bool, None) and their places.

    ``places`` maps a path to its value's place (for a mapping's entry: its key's); ``blocks`` to its literal block.
    """

    value: Any = None
    places: dict[Path, Place] = field(default_factory=dict)
    blocks: dict[Path, Block] = field(default_factory=dict)

    def place(self, path: Path) -> Place:
        """The place of ``path``, or of its nearest ancestor in the file."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(1, 1))


def read_yaml(text: str) -> Tree:
    """The single document in ``text``. Raises YamlRefused."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise YamlRefused(f"expected at most {MAX_BYTES} bytes, found more", 1, 1)
    tree = Tree()
    tree.value = _Builder(text, tree).build(_compose(text), ())
    return tree


def _compose(text: str) -> Node | None:
    try:
        # A subclass of SafeLoader that only composes; _Builder builds the values and knows no tags.
        node: Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _refused(parser_message(error.problem or str(error), text, mark.index if mark else 0), mark) from None
    except yaml.reader.ReaderError as error:  # a character that YAML does not allow: no mark
        odd = f"the character {chr(error.character)!r} is not allowed; leave it out"
        raise YamlRefused(odd, *_place_of(text, error.position)) from None
    return node


def _place_of(text: str, position: int) -> tuple[int, int]:
    """Line and column of a character."""
    lines = f"{text[:position]}?".splitlines()
    return len(lines), len(lines[-1])


def _refused(message: str, mark: yaml.Mark | None) -> YamlRefused:
    return YamlRefused(message, (mark.line if mark else 0) + 1, (mark.column if mark else 0) + 1)


def _bare(mark: yaml.Mark) -> Bare | None:
    """The value at this place, if it was meant as text and needs quotes."""
    return bare_value(str(mark.buffer), mark.index)


def _out_of(mark: yaml.Mark) -> str:
    """What to do about an anchor or alias; text that starts with * or & needs quotes."""
    found = _bare(mark)
    if found is None or re.search(r"[\[{]", found.text):
        return "write the value out"
    return f"write the value out, or, for text, {quoted(found.text)}"


def _unknown_tag(tag: str, mark: yaml.Mark) -> YamlRefused:
    found = _bare(mark)
    meant = found is not None and not re.match(r"!!|!\S*\s*[\[{]", found.text)  # else it is meant as a tag
    return _refused((meant and found and found.message) or f"tag {tag!r} is not allowed; remove it", mark)


class _Loader(yaml.SafeLoader):
    """Composes nodes of bounded depth, without anchors and aliases (no alias bomb), resolving few scalar types."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own protocol
    depth = values = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _refused(
                f"anchors (&) and aliases (*) are not allowed; {_out_of(event.start_mark)}", event.start_mark
            )
        if getattr(event, "tag", None) == "!":
            raise _unknown_tag("!", event.start_mark)
        if self.depth >= MAX_DEPTH:
            raise _refused(f"nested deeper than {MAX_DEPTH} levels; reduce the nesting", event.start_mark)
        self.values += 1
        if self.values > MAX_VALUES:
            raise _refused(f"expected at most {MAX_VALUES} values, found more", event.start_mark)
        self.depth += 1
        node: Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9][0-9_]*", "-+0123456789"),
    ("float", r"[-+]?[0-9][0-9_]*\.[0-9]*([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", "-+0123456789"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
):
    _Loader.add_implicit_resolver(
        f"{_YAML}{_tag}", re.compile(rf"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first]
    )


class _Builder:
    """Turns composed nodes into plain values and records their places."""

    def __init__(self, text: str, tree: Tree) -> None:
        self.lines = text.splitlines()
        self.tree = tree

    def build(self, node: Node | None, path: Path) -> Any:
        if node is None:
            return None
        self.tree.places.setdefault(path, Place(node.start_mark.line + 1, node.start_mark.column + 1))
        if node.tag not in _TAGS:
            raise _unknown_tag(node.tag, node.start_mark)
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.build(child, (*path, i)) for i, child in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key in result:
                first = self.tree.places[(*path, key)].line
                raise _refused(
                    f"duplicate key {key!r}: it is already in line {first}; remove one of them",
                    key_node.start_mark,
                )
            self.tree.places[(*path, key)] = Place(key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            result[key] = self.build(value_node, (*path, key))
        return result

    def _key(self, node: Node) -> str:
        if not isinstance(node, ScalarNode):
            found = _bare(node.start_mark)
            template = found is not None and "{{" in found.text
            said = "expected a name as a key, found a list or mapping"
            raise _refused(found.message if found and template else said, node.start_mark)
        return self._checked(node)

    def _checked(self, node: Any) -> str:
        """The node's text. Refuses escaped characters that neither a path nor a log can hold."""
        odd = _ODD.search(node.value)
        if odd:
            raise _refused(f"the character {odd.group()!r} is not allowed; leave it out", node.start_mark)
        return str(node.value)

    def _scalar(self, node: Any, path: Path) -> Any:
        if node.style == "|":
            self.tree.blocks[path] = self._block(node)
        kind, text = node.tag.removeprefix(_YAML), self._checked(node)
        try:
            return _SCALARS[kind](text)
        except (KeyError, ValueError):  # `!!int x`, `!!map x`
            raise _refused(f"expected a value of type {kind}, found {node.value[:40]!r}", node.start_mark) from None

    def _block(self, node: Any) -> Block:
        """The block's place; its indent is how much longer a line is in the file than in the value."""
        first = node.start_mark.line + 1
        for offset, line in enumerate(node.value.splitlines()):
            if line.strip() and first + offset < len(self.lines):
                return Block(first + 1, len(self.lines[first + offset]) - len(line))
        return Block(first + 1, 0)


_SCALARS: dict[str, Any] = {
    "str": str,
    "int": lambda text: int(text.replace("_", "")),
    "float": lambda text: float(text.replace("_", "")),
    "bool": lambda text: text.lower() == "true",
    "null": lambda text: None,
}
_TAGS = {f"{_YAML}{kind}" for kind in (*_SCALARS, "map", "seq")}
