"""Parses column declarations (`device STRING, at TIMESTAMP`) without a JVM.

The types are those that Delta tables, Arrow and Python all hold without loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SYNONYMS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float",
            "dec": "decimal", "numeric": "decimal", "timestamp_ltz": "timestamp"}  # fmt: skip
PLAIN = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
         "timestamp_ntz")  # fmt: skip
NESTED = ("array", "map", "struct")
WIDER = ("tinyint", "smallint", "int", "bigint"), ("float", "double")
_TOKEN = re.compile(r"\s*(?:`(?P<quoted>\w+)`|(?P<word>\w+)|(?P<sign>[<>(),:])|(?P<other>\S))", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class Type:
    """A type. `parts`: an array's element, a map's key and value, a struct's fields."""

    name: str
    precision: int = 0
    scale: int = 0
    parts: tuple[Column, ...] = ()

    def __str__(self) -> str:
        """The type as Spark writes it."""
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name == "struct":
            return f"struct<{', '.join(f'{part.name}: {part.type}' for part in self.parts)}>"
        return f"{self.name}<{', '.join(str(part.type) for part in self.parts)}>" if self.parts else self.name

    @property
    def has_map(self) -> bool:
        """Whether it contains a map, at any depth."""
        return self.name == "map" or any(part.type.has_map for part in self.parts)

    @property
    def has_nested_key(self) -> bool:
        """Whether it contains a map whose keys are arrays or structs, which no dict of Python can have."""
        return (self.name == "map" and bool(self.parts[0].type.parts)) or any(
            part.type.has_nested_key for part in self.parts
        )


@dataclass(frozen=True)
class Column:
    name: str
    type: Type

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


def columns_of(ddl: str) -> tuple[Column, ...]:
    """The columns that `ddl` declares. Raises ValueError: what was expected, and what was found."""
    reader = _Reader(ddl)
    found = tuple(reader.columns())
    reader.end()
    _refuse_doubled([column.name for column in found])
    return found


def delta_name(kind: Type) -> str:
    """The type's name as Delta's logs spell it: `long`, `decimal(10,2)`, `struct`."""
    spelt = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte"}
    return str(kind) if kind.name == "decimal" else spelt.get(kind.name, kind.name)


def text_of(columns: tuple[Column, ...]) -> str:
    """The declaration in its canonical spelling."""
    return ", ".join(map(str, columns))


def fits(old: Type, new: Type) -> bool:
    """Whether every value of type `old` is also one of type `new`."""
    if old.name == new.name == "decimal":
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    wider = next((row for row in WIDER if old.name in row and new.name in row), None)
    return old == new if wider is None else wider.index(new.name) >= wider.index(old.name)


def _refuse_doubled(names: list[str]) -> None:
    lower = [name.lower() for name in names]
    doubled = next((name for i, name in enumerate(names) if name.lower() in lower[:i]), None)
    if doubled:
        raise ValueError(f"expected each column once, found {doubled} twice")


class _Reader:
    """Reads a declaration once, from left to right."""

    def __init__(self, ddl: str):
        self._tokens = [(match.lastgroup, match[match.lastgroup or ""]) for match in _TOKEN.finditer(ddl)]
        self._at = 0

    def columns(self, between: str = "") -> Iterator[Column]:
        """`name type, …`; `between`: the sign between name and type (a struct's fields have a colon)."""
        while True:
            name = self._name()
            if between:
                self._skip(between)
            yield Column(name, self._type())
            if not self._skip(","):
                return

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise ValueError(f"expected a comma or the end, found {self._next_text()}")

    def _name(self) -> str:
        kind, text = self._next("a column name")
        if kind not in ("word", "quoted") or not _NAME.fullmatch(text):
            raise ValueError(f"expected a column name of letters, digits and _, found {text!r}")
        return text

    def _type(self) -> Type:
        kind, text = self._next("a type")
        name = SYNONYMS.get(text.lower(), text.lower())
        if kind == "word" and name in PLAIN:
            return Type(name)
        if kind == "word" and name == "decimal":
            return self._decimal()
        if kind == "word" and name in NESTED:
            return self._nested(name)
        known = ", ".join(map(str.upper, (*PLAIN, "decimal", *NESTED)))
        raise ValueError(f"expected a type out of {known}, found {text!r}")

    def _decimal(self) -> Type:
        precision, scale = 10, 0
        if self._skip("("):
            precision = self._number()
            scale = self._number() if self._skip(",") else 0
            self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise ValueError(
                "expected DECIMAL(precision from 1 to 38, scale at most the precision), found "
                f"DECIMAL({precision},{scale})"
            )
        return Type("decimal", precision, scale)

    def _nested(self, name: str) -> Type:
        self._expect("<")
        if name == "struct":
            parts = tuple(self.columns(":"))
            _refuse_doubled([part.name for part in parts])
        elif name == "array":
            parts = (Column("element", self._type()),)
        else:
            key = Column("key", self._type())
            self._expect(",")
            parts = (key, Column("value", self._type()))
            if key.type.has_map:
                raise ValueError("expected a map key that contains no map")
        self._expect(">")
        return Type(name, parts=parts)

    def _number(self) -> int:
        _, text = self._next("a number")
        if not text.isdecimal():
            raise ValueError(f"expected a number, found {text!r}")
        return int(text)

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            raise ValueError(f"expected {sign!r}, found {self._next_text()}")

    def _skip(self, sign: str) -> bool:
        there = self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign)
        self._at += there
        return there

    def _next(self, expected: str) -> tuple[str | None, str]:
        if self._at >= len(self._tokens):
            raise ValueError(f"expected {expected}, found the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _next_text(self) -> str:
        return repr(self._tokens[self._at][1]) if self._at < len(self._tokens) else "the end"
