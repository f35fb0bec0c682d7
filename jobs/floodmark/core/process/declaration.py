"""Reads what a rule's class declares from its module's text. It imports nothing, so no user code runs."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from floodmark.core.text.ddl import Column, columns_of, text_of
from floodmark.core.text.durations import parse_duration
from floodmark.core.text.files import read_plain

ALLOWED = "FLOODMARK_CLASSES"  # the operator's list of the modules whose classes rules may name
OWN_TABLES = ("counters", "timers", "clock_timers")
OWN_COLUMNS = ("name", "value", "at")  # columns of those tables
METHODS = {"process": "(self, key, rows, ctx)", "on_timer": "(self, key, at, name, ctx)",
           "on_clock": "(self, key, at, name, ctx)"}  # fmt: skip
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")  # a folder's name, too: no two that a file system treats as equal
_ABSTRACT = ("abstractmethod", "abc.abstractmethod")


@dataclass(frozen=True)
class Declared:
    """What a class declares: `output` and `state` as canonical DDL; `ttl_us`: microseconds by table."""

    output: str
    state: dict[str, str]
    ttl_us: dict[str, int]
    timers: bool
    clock_timers: bool


def check_allowed(module: str, env: Mapping[str, str]) -> None:
    """Raise ValueError if the operator's list in FLOODMARK_CLASSES has neither the module nor a package of it."""
    if ALLOWED not in env:
        return
    allowed = [one.strip() for one in env[ALLOWED].split(",") if one.strip()]
    if not any(f"{module}.".startswith(f"{one}.") for one in allowed):
        raise ValueError(f"expected a module out of {ALLOWED} ({', '.join(allowed) or 'none'}), found {module}")


def text_of_module(module: str, beside: Path, env: Mapping[str, str]) -> str:
    """The text of `module`: in the folder `beside`, else on the Python path. Raises ValueError and OSError.

    If the operator has a list, a file beside a rule may not shadow a package of the Python path, which the list means.
    """
    file = _beside(module, beside)
    if file.exists():
        if ALLOWED in env and (other := _elsewhere(module.split(".")[0], beside)):
            raise ValueError(
                f"expected the module {module} in one place, because {ALLOWED} is set, found {file} and {other}"
            )
        return read_plain(file, beside)
    found = _on_path(module)
    if found is None:
        raise ValueError(f"expected the module {module} at {file} or on the Python path, found none")
    return read_plain(found)


def file_of_module(module: str, beside: Path) -> Path | None:
    """The file that `text_of_module` reads; None if there is none."""
    file = _beside(module, beside)
    return file if file.exists() else _on_path(module)


def _beside(module: str, folder: Path) -> Path:
    return folder.joinpath(*module.split(".")).with_suffix(".py")


def _elsewhere(package: str, beside: Path) -> str | None:
    """The package's place on the Python path, other than in the folder `beside`."""
    spec = PathFinder.find_spec(package) if package not in sys.stdlib_module_names else None
    places = [] if spec is None else spec.submodule_search_locations or [spec.origin or ""]
    folder = beside.resolve()
    return next((place for place in places if not Path(place).resolve().is_relative_to(folder)), None)


def _on_path(module: str) -> Path | None:
    """The module's file, by the finders of package folders; importlib.util.find_spec would import packages."""
    if module.split(".")[0] in sys.stdlib_module_names:
        return None  # Python's own modules contain no rule's class
    places = None
    for name in module.split("."):
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    file = Path(spec.origin) if spec and spec.origin else None
    return file if file and file.suffix == ".py" and file.is_file() else None


def missing_imports(source: str, file: str) -> Iterator[str]:
    """`FILE:LINE: …` for each missing module that the text imports at its top level."""
    for node in ast.parse(source, file).body:
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
            if node.level:
                yield f"{file}:{node.lineno}: expected imports by full name, found a relative one"
                continue
        for name in (name.split(".")[0] for name in names):
            if find_spec(name) is None:
                yield f"{file}:{node.lineno}: expected a module {name} on the Python path, found none"


def declared(source: str, file: str, name: str) -> Declared:
    """What class `name` declares in the module's text. Raises ValueError with `FILE:LINE: expected …, found …`."""
    try:
        tree = ast.parse(source, file)
    except SyntaxError as fault:
        raise ValueError(f"{file}:{fault.lineno}: expected Python, found {fault.msg}") from None
    return _Class(tree, file, name).declared()


class _Class:
    """One class of a module, including its base classes in the same module."""

    def __init__(self, tree: ast.Module, file: str, name: str):
        self._file = file
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        if name not in self._classes:
            there = ", ".join(self._classes) or "no class"
            raise ValueError(f"{file}: expected a class {name}, found {there}")
        self._node = self._classes[name]
        self._stand_ins: dict[str, type] = {}
        self._members = dict(reversed([pair for node in self._lineage() for pair in _members(node)]))

    def declared(self) -> Declared:
        self._check_methods()
        state = {str(name): self._columns(f"state[{name!r}]", ddl, "state") for name, ddl in self._state().items()}
        self._check_state(state)
        return Declared(
            output=text_of(self._columns("output", self._literal("output"), "output")),
            state={name: text_of(columns) for name, columns in state.items()},
            ttl_us=self._ttl(state),
            timers="on_timer" in self._members,
            clock_timers="on_clock" in self._members,
        )

    def _lineage(self) -> list[ast.ClassDef]:
        """The class and its base classes, in the order in which Python looks for attributes."""
        try:
            return [self._classes[one.__name__] for one in self._stand_in(self._node, ()).__mro__[:-1]]
        except TypeError as fault:
            raise self._fault(self._node, f"expected base classes that Python can put in an order: {fault}") from None

    def _stand_in(self, node: ast.ClassDef, seen: tuple[str, ...]) -> type:
        """An empty class with bases like those of this class: Python itself tells their order."""
        bases = []
        for base in node.bases:
            name = ast.unparse(base)
            if name in self._classes and name not in seen:
                bases.append(self._stand_ins.get(name) or self._stand_in(self._classes[name], (*seen, node.name)))
            elif name not in ("object", "ABC", "abc.ABC"):
                raise self._fault(base, f"expected base classes of this module, found {name}: their declarations "
                                        "cannot be read without importing them")  # fmt: skip
        return self._stand_ins.setdefault(node.name, type(node.name, tuple(bases), {}))

    def _check_methods(self) -> None:
        if "process" not in self._members:
            raise self._fault(self._node, f"expected a method process{METHODS['process']}, found none")
        for name, member in self._members.items():
            if isinstance(member, ast.FunctionDef) and _is_abstract(member):
                raise self._fault(member, f"expected a class that is not abstract, found the abstract method {name}")
            if name in METHODS:
                self._check_method(name, member)
        start = self._members.get("__init__")
        if isinstance(start, ast.FunctionDef) and _required(start) > 1:
            raise self._fault(start, "expected __init__(self) without further arguments: no caller could supply them")

    def _check_method(self, name: str, member: ast.AST) -> None:
        wanted = METHODS[name]
        if not isinstance(member, ast.FunctionDef) or member.decorator_list:
            raise self._fault(member, f"expected a plain method {name}{wanted}")
        given = len(member.args.posonlyargs) + len(member.args.args)
        if member.args.vararg is None and (given != wanted.count(",") + 1 or _required(member) > given):
            raise self._fault(member, f"expected {name}{wanted}, found {name}({ast.unparse(member.args)})")

    def _literal(self, name: str) -> Any:
        member = self._members.get(name)
        if member is None:
            raise self._fault(self._node, f"expected `{name} = ...` in class {self._node.name}, found none")
        try:
            return ast.literal_eval(member)
        except (ValueError, TypeError):
            raise self._fault(
                member, f"expected {name} as a literal, because it is read without running the module"
            ) from None

    def _state(self) -> dict[Any, Any]:
        found = self._literal("state") if "state" in self._members else {}
        if not isinstance(found, dict) or not all(isinstance(name, str) and _TABLE.fullmatch(name) for name in found):
            raise self._fault(
                self._members["state"],
                "expected state = {'name': 'column TYPE, ...'} with names of at most 63 letters, digits and _",
            )
        return found

    def _columns(self, what: str, ddl: Any, member: str) -> tuple[Column, ...]:
        if not isinstance(ddl, str):
            raise self._fault(self._members[member], f"expected {what} as text such as 'device STRING, at TIMESTAMP'")
        try:
            found = columns_of(ddl)
        except ValueError as fault:
            raise self._fault(self._members[member], f"{what}: {fault}") from None
        nested = next((str(column) for column in found if column.type.has_nested_key), None)
        if nested is not None:
            raise self._fault(
                self._members[member],
                f"{what}: expected maps whose keys are neither arrays nor structs, which no dict has, found {nested}",
            )
        return found

    def _check_state(self, state: dict[str, tuple[Column, ...]]) -> None:
        lower = [name.lower() for name in state]
        for name, columns in state.items():
            hidden = [column.name for column in columns if column.name.startswith("_")]
            if name.lower() in OWN_TABLES or name.startswith("_") or lower.count(name.lower()) > 1:
                raise self._fault(self._members["state"], "expected names of state that differ in more than upper "
                                                          "and lower case, have no leading _ and are none of "
                                                          f"{', '.join(OWN_TABLES)}, found {name!r}")  # fmt: skip
            if hidden:
                raise self._fault(self._members["state"], f"state[{name!r}]: expected columns without a leading _, "
                                                          f"found {', '.join(hidden)}")  # fmt: skip

    def _ttl(self, state: dict[str, tuple[Column, ...]]) -> dict[str, int]:
        found = self._literal("ttl") if "ttl" in self._members else {}
        known = [*state, "counters"]
        if not isinstance(found, dict) or not found.keys() <= set(known):
            raise self._fault(self._members["ttl"], "expected ttl = {'name': '30 days'} with names among "
                                                    f"{', '.join(known)}, found {found!r}")  # fmt: skip
        return {name: self._duration(name, text) for name, text in found.items()}

    def _duration(self, name: str, text: Any) -> int:
        try:
            found = parse_duration(text) if isinstance(text, str) else 0
        except ValueError as fault:
            raise self._fault(self._members["ttl"], f"ttl[{name!r}]: {fault}") from None
        if found <= 0:
            raise self._fault(self._members["ttl"], f"ttl[{name!r}]: expected a duration above 0, found {text!r}")
        return found

    def _fault(self, node: Any, problem: str) -> ValueError:
        return ValueError(f"{self._file}:{node.lineno}: {problem}")


def _members(node: ast.ClassDef) -> Iterator[tuple[str, ast.AST]]:
    """Methods, and the values of class attributes, last definition first: of several with one name the last counts.

    A value that is changed in place (`ttl["a"] = …`, `ttl |= …`) is the statement, which is no literal.
    """
    for child in reversed(node.body):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child.name, child
        elif isinstance(child, ast.Assign):
            yield from (_assigned(target, child) for target in child.targets)
        elif isinstance(child, ast.AnnAssign) and child.value is not None:
            yield ast.unparse(child.target), child.value
        elif isinstance(child, ast.AugAssign):
            yield ast.unparse(child.target), child


def _assigned(target: ast.expr, statement: ast.Assign) -> tuple[str, ast.AST]:
    if isinstance(target, ast.Subscript):
        return ast.unparse(target.value), statement
    return ast.unparse(target), statement.value


def _is_abstract(method: ast.FunctionDef) -> bool:
    return any(ast.unparse(one) in _ABSTRACT for one in method.decorator_list)


def _required(method: ast.FunctionDef) -> int:
    """How many arguments a call must have."""
    arguments = method.args
    named = sum(default is None for default in arguments.kw_defaults)
    return len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults) + named
