"""The keys of a stream of a class in a rule file, and what the class's module says without being run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from floodmark.core.process.declaration import check_allowed, text_of_module
from floodmark.core.rules.file.fields import Filled, Written, as_text, connection_name, declared_columns

Methods: TypeAlias = Mapping[str, tuple[str, ...]]  # by name, the arguments beside self
METHODS: Methods = {"earliest": (), "latest": (), "read": ("begin", "end")}
MAY: Methods = {"split": ("begin", "end", "most"), "identity": (), "describe": ("offset",)}
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


class WrittenClass(Written):
    """A class of the rules folder or the Python path."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    named: Annotated[
        str, AfterValidator(_class), BeforeValidator(as_text),
        Field(alias="class", pattern=_CLASS, description="module:Class, in the rules folder or on the Python path"),
    ]  # fmt: skip
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


class WrittenPython(WrittenClass):
    """A class that reads rows, and their columns."""

    declared: Annotated[
        Filled, AfterValidator(declared_columns), Field(alias="schema", description="the columns, as in CREATE TABLE")
    ]


def code_of(said: Any, folder: Path, env: Mapping[str, str]) -> str:
    """The text of the class's module. Raises ValueError and OSError, also if the class cannot be a source."""
    written = WrittenPython.model_validate(said)
    text = module_of(written, folder, env)
    check_class(text, written.file, written.name)
    return text


def module_of(written: WrittenClass, folder: Path, env: Mapping[str, str]) -> str:
    """The text of the module. Raises ValueError and OSError."""
    check_allowed(written.module, env)
    return text_of_module(written.module, folder, env)


def check_class(text: str, file: str, name: str, methods: Methods = METHODS, may: Methods = MAY) -> None:
    """Raise ValueError, with the place, if class `name` of a module's text lacks one of the `methods`, or has another
    form of it, or of one that it `may` have."""
    nodes = _classes(text, file)
    if name not in nodes:
        raise ValueError(f"{file}: expected a class {name}, found {', '.join(nodes) or 'no class'}")
    foreign = [base for node in _lineage(nodes[name], nodes) for base in node.bases if ast.unparse(base) not in nodes]
    found = _functions(nodes, name)
    missing = [method for method in methods if method not in found]
    if missing and not foreign:
        raise ValueError(f"{file}:{nodes[name].lineno}: expected a method {missing[0]} in class {name}, found none")
    for method, arguments in {**methods, **may}.items():
        if method in found:
            _check_method(found[method], arguments, file)


@lru_cache(maxsize=64)
def methods_in(text: str, file: str, name: str) -> frozenset[str]:
    """The methods that class `name` has by a module's text: its own, and those of base classes in the same text.

    Raises ValueError for a text that is no Python.
    """
    nodes = _classes(text, file)
    return frozenset(_functions(nodes, name) if name in nodes else ())


def _classes(text: str, file: str) -> dict[str, ast.ClassDef]:
    try:
        return {node.name: node for node in ast.parse(text, file).body if isinstance(node, ast.ClassDef)}
    except SyntaxError as fault:
        raise ValueError(f"{file}:{fault.lineno}: expected Python, found {fault.msg}") from None


def _functions(nodes: Mapping[str, ast.ClassDef], name: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {one.name: one for node in _lineage(nodes[name], nodes) for one in node.body if isinstance(one, _FUNCTIONS)}


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _lineage(node: ast.ClassDef, nodes: Mapping[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """Base classes of the same module first, so that the class's own methods replace theirs."""
    for base in node.bases:
        other = nodes.get(ast.unparse(base))
        if other is not None and other.lineno < node.lineno:
            yield from _lineage(other, nodes)
    yield node


def _check_method(node: ast.FunctionDef | ast.AsyncFunctionDef, arguments: tuple[str, ...], file: str) -> None:
    given, count = node.args, len(arguments)
    most = len(given.posonlyargs) + len(given.args) - 1
    least = most - len(given.defaults)
    fits = least <= count <= (count if given.vararg else most) and not any(one is None for one in given.kw_defaults)
    if isinstance(node, ast.AsyncFunctionDef) or node.decorator_list or not fits:
        raise ValueError(
            f"{file}:{node.lineno}: expected a plain method {node.name}({', '.join(('self', *arguments))})"
        )
