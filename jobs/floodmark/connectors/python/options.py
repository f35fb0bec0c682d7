"""The keys of a stream of a class in a rule file, and what the class's module says without being run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from floodmark.core.process.declaration import check_allowed, text_of_module
from floodmark.core.rules.file.fields import Filled, Written, as_text, connection_name, declared_columns

METHODS = {"earliest": 0, "latest": 0, "read": 2}  # how many arguments beside self
MAY = {"split": 3, "identity": 0, "describe": 1}
_CLASS = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"


def _class(value: str) -> str:
    if not re.fullmatch(_CLASS[1:-1], value, re.ASCII):
        raise ValueError("expected module:Class, such as shop:Orders for the class Orders in shop.py")
    return value


def _connection(value: str | None) -> str | None:
    return None if value is None else connection_name(value)


def _settings(value: object) -> object:
    if not isinstance(value, dict) or not all(isinstance(name, str) and name.isidentifier() for name in value):
        raise ValueError("expected the arguments of the class by name, such as {url: 'https://host/orders'}")
    if "connection" in value:
        raise ValueError("expected `connection` beside `settings`, found it among them")
    return value


class WrittenPython(Written):
    """A class of the rules folder or the Python path, and the columns of its rows."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    named: Annotated[
        str, AfterValidator(_class), BeforeValidator(as_text),
        Field(alias="class", pattern=_CLASS, description="module:Class, in the rules folder or on the Python path"),
    ]  # fmt: skip
    declared: Annotated[
        Filled, AfterValidator(declared_columns), Field(alias="schema", description="the columns, as in CREATE TABLE")
    ]
    settings: Annotated[
        dict[str, Any], BeforeValidator(_settings), Field(description="arguments of the class, by name")
    ] = {}
    connection: Annotated[
        Filled | None, AfterValidator(_connection), Field(description="name of a connection that the class gets")
    ] = None

    @property
    def module(self) -> str:
        return self.named.partition(":")[0]

    @property
    def file(self) -> str:
        """The module's file, as messages and tracebacks name it."""
        return f"{self.module.replace('.', '/')}.py"

    @property
    def name(self) -> str:
        return self.named.partition(":")[2]


def code_of(said: Any, folder: Path, env: Mapping[str, str]) -> str:
    """The text of the class's module. Raises ValueError and OSError, also if the class cannot be a source."""
    written = WrittenPython.model_validate(said)
    check_allowed(written.module, env)
    text = text_of_module(written.module, folder, env)
    check_class(text, written.file, written.name)
    return text


def check_class(text: str, file: str, name: str) -> None:
    """Raise ValueError, with the place, if class `name` of a module's text lacks a method or has another form of it."""
    try:
        nodes = {node.name: node for node in ast.parse(text, file).body if isinstance(node, ast.ClassDef)}
    except SyntaxError as fault:
        raise ValueError(f"{file}:{fault.lineno}: expected Python, found {fault.msg}") from None
    if name not in nodes:
        raise ValueError(f"{file}: expected a class {name}, found {', '.join(nodes) or 'no class'}")
    foreign = [base for node in _lineage(nodes[name], nodes) for base in node.bases if ast.unparse(base) not in nodes]
    found = {one.name: one for node in _lineage(nodes[name], nodes) for one in node.body if isinstance(one, _FUNCTIONS)}
    missing = [method for method in METHODS if method not in found]
    if missing and not foreign:
        raise ValueError(f"{file}:{nodes[name].lineno}: expected a method {missing[0]} in class {name}, found none")
    for method, count in {**METHODS, **MAY}.items():
        if method in found:
            _check_method(found[method], count, file)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _lineage(node: ast.ClassDef, nodes: Mapping[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """Base classes of the same module first, so that the class's own methods replace theirs."""
    for base in node.bases:
        other = nodes.get(ast.unparse(base))
        if other is not None and other.lineno < node.lineno:
            yield from _lineage(other, nodes)
    yield node


def _check_method(node: ast.FunctionDef | ast.AsyncFunctionDef, count: int, file: str) -> None:
    given = node.args
    most = len(given.posonlyargs) + len(given.args) - 1
    least = most - len(given.defaults)
    fits = least <= count <= (count if given.vararg else most) and not any(one is None for one in given.kw_defaults)
    if isinstance(node, ast.AsyncFunctionDef) or node.decorator_list or not fits:
        arguments = {0: "self", 1: "self, offset", 2: "self, begin, end", 3: "self, begin, end, most"}[count]
        raise ValueError(f"{file}:{node.lineno}: expected a plain method {node.name}({arguments})")
