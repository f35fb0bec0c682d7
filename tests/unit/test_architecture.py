"""The code's rooms: how many a floor has, who imports whom, and that ARCHITECTURE.md names every module."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PACKAGES = {"floodmark": CHECKOUT / "jobs", "floodmark_airflow": CHECKOUT / "plugins"}
MOST = 12  # modules and packages side by side
MOST_LINES, MOST_OF_CLASS = 400, 250
CATALOGUES = {"floodmark.cli.commands"}  # one file for each of a kind, and nothing else: these may be longer
ARCHITECTURE = CHECKOUT / "ARCHITECTURE.md"
ROOTS = (CHECKOUT, CHECKOUT / "jobs/floodmark")  # of the paths in it
HEADING = "pytest tests/unit/test_architecture.py`.\n\n"


@cache
def modules() -> dict[str, Path]:
    """Every module with something in it, by its dotted name; packages by theirs."""
    found = {}
    for package, root in PACKAGES.items():
        for path in (root / package).rglob("*.py"):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imported(path: Path) -> Iterator[str]:
    """The modules that a module imports, wherever it does so."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                full = f"{node.module}.{one.name}"
                yield full if full in modules() else node.module
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


@cache
def rooms() -> dict[str, set[str]]:
    """Of each package, its modules and packages. pytest needs these when it collects, and not what they import."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in modules():
        parts = name.split(".")
        for depth in range(1, len(parts)):
            found[".".join(parts[:depth])].add(parts[depth])
    return found


@cache
def floors() -> dict[str, dict[str, set[str]]]:
    """Of each package, its modules and packages, and which of them each imports."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, path in modules().items():
        parts = name.split(".")
        for depth in range(1, len(parts)):
            _ = found[".".join(parts[:depth])][parts[depth]]
        if path.name == "__init__.py":
            continue
        for other in imported(path):
            its = other.split(".")
            common = next((at for at, (a, b) in enumerate(zip(parts, its, strict=False)) if a != b), None)
            if common and other in modules():
                found[".".join(parts[:common])][parts[common]].add(its[common])
    return found


@pytest.mark.parametrize("floor", sorted(set(rooms()) - CATALOGUES))
def test_a_floor_is_small_enough_to_be_seen_at_once(floor: str) -> None:
    assert len(rooms()[floor]) <= MOST, sorted(rooms()[floor])


def test_modules_and_classes_are_about_one_thing() -> None:
    """By their lines; what is longer has a part that can be named."""
    long = {name: lines for name, path in modules().items() if (lines := path.read_text().count("\n")) > MOST_LINES}
    classes = (
        (f"{name}.{node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert long | {name: lines for name, lines in classes if lines > MOST_OF_CLASS} == {}


@pytest.mark.parametrize("floor", sorted(rooms()))
def test_no_two_rooms_import_each_other(floor: str) -> None:
    try:
        TopologicalSorter(floors()[floor]).prepare()
    except CycleError as fault:
        pytest.fail(f"{floor}: {' → '.join(fault.args[1])}")


def test_architecture_says_of_every_module_what_it_holds() -> None:
    before, heading, found = architecture().partition(HEADING)
    assert heading
    if os.environ.get("FLOODMARK_RENEW") == "1":
        ARCHITECTURE.write_text(f"{before}{heading}{every_module()}")
    else:
        assert found == every_module(), "FLOODMARK_RENEW=1 writes it anew"


def every_module() -> str:
    """A list for each room: its modules with the first sentence of each."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for name, path in sorted(modules().items()):
        room, _, module = name.removeprefix("floodmark.").rpartition(".")
        if path.name == "__init__.py":
            rooms[name.removeprefix("floodmark.").replace(".", "/")].insert(0, first_sentence(path))
        else:
            rooms[room.replace(".", "/") or "floodmark"].append(f"- `{module}`: {first_sentence(path)}")
    listed = (f"### `{room}`\n\n{told[0]}\n\n" + "\n".join(told[1:]) for room, told in sorted(rooms.items()))
    return "\n\n".join(one.rstrip() for one in listed) + "\n"


def first_sentence(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text()))
    assert said, f"{path}: expected a docstring, found none"
    return re.split(r"(?<=[.!?])\s", " ".join(said.split("\n\n")[0].split()))[0]


def test_what_architecture_names_is_there() -> None:
    """Paths with a folder, as they are written for who changes something."""
    named = set(re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|toml|md))`", architecture()))
    assert sorted(one for one in named if not any((root / one).exists() for root in ROOTS)) == []


def test_the_modules_and_names_that_architecture_points_to_are_there() -> None:
    """Dotted modules, files that stand alone beside a path of their folder, and names said to be in a file."""
    wrong = [one for one in set(re.findall(r"`((?:core|spark|connectors|ledger|audit|views|cli)(?:\.\w+)+)`", text()))
             if not one.endswith(".py") and not is_dotted(one)]  # fmt: skip
    for line in re.sub(r"\n\s+", " ", text()).split("\n"):
        wrong += [name for name in re.findall(r"`(\w+\.(?:py|js|css|html))`", line) if not is_beside(name, line)]
        for names, file in re.findall(r"((?:`\w+`(?:, | and )?)+) in `([\w/-]+\.py)`", line):
            found = file_at(file).read_text()
            wrong += [f"{name} in {file}" for name in re.findall(r"`(\w+)`", names) if not has(found, name)]
    assert wrong == []


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports them by name: of two with one name, it can import only the first."""
    names = Counter(file.name for file in (CHECKOUT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_message_names_a_constant_where_its_value_should_be() -> None:
    """A part of a text that is joined to an f-string has to be one, too."""
    found = [
        f"{name}:{part.lineno}: {part.value}"
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.JoinedStr)
        for part in node.values
        if isinstance(part, ast.Constant)
        for constant in re.findall(r"\{(_?[A-Z][A-Z_]+)\}", str(part.value))
        if re.search(rf"^{constant} =", path.read_text(), re.MULTILINE)
    ]
    assert not found


def text() -> str:
    """What people have written of it."""
    return architecture().partition(HEADING)[0]


def is_dotted(name: str) -> bool:
    """Whether `a.b.c` is a module, a package, or a name in a module."""
    parts = f"floodmark.{name}".split(".")
    known = next((n for n in range(len(parts), 1, -1) if ".".join(parts[:n]) in modules()), 0)
    code = modules()[".".join(parts[:known])].read_text() if known else ""
    return bool(known) and all(has(code, part) for part in parts[known:])


def is_beside(name: str, line: str) -> bool:
    """Whether a file lies in, or below, a folder that is named in the same line."""
    folders = {part.rpartition("/")[0] for part in re.findall(r"`([\w/-]+/(?:[\w-]+\.\w+)?)`", line)}
    return (CHECKOUT / name).exists() or any(
        (root / folder / name).exists() for root in ROOTS for folder in folders | {"", "floodmark"}
    )


def file_at(path: str) -> Path:
    return next(root / path for root in ROOTS if (root / path).exists())


def has(code: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", code) is not None


def architecture() -> str:
    return ARCHITECTURE.read_text()
