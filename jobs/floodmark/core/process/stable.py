"""Finds clocks and randomness in a module's text, because a replay would get another result from them.

The check knows the usual names, also behind `import … as …`. It cannot see what other modules do.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator

_CLOCKS = frozenset(
    """
    datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today
    time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns time.process_time
    time.process_time_ns time.localtime time.gmtime time.ctime time.strftime time.asctime
    pandas.Timestamp.now pandas.Timestamp.utcnow pandas.Timestamp.today
    pyspark.sql.functions.current_timestamp pyspark.sql.functions.now pyspark.sql.functions.current_date
    pyspark.sql.functions.localtimestamp pyspark.sql.functions.unix_timestamp
""".split()
)
_RANDOM = frozenset(
    """
    uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 uuid.uuid8 uuid.getnode os.urandom os.getrandom
    pyspark.sql.functions.rand pyspark.sql.functions.randn pyspark.sql.functions.uuid
""".split()
)
_OTHER = "gives a different answer in a replay"
_DERIVED = "derive it from the row, for example with uuid.uuid5"
_RANDOM_MODULES = ("random", "secrets", "numpy.random")
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_KEEP_NOTHING = frozenset({"dataclasses.dataclass", "functools.cache", "functools.lru_cache", "typing.final"})
_LOOKUPS = frozenset({"globals", "vars", "eval", "exec", "modules", "__subclasses__", "__init_subclass__"})
_WATCHED = {name.rpartition(".")[0] for name in _CLOCKS | _RANDOM} | set(_RANDOM_MODULES)


def unstable(source: str, file: str) -> Iterator[str]:
    """`FILE:LINE: …` for each use of a wall clock or of randomness, with what to use instead."""
    tree = ast.parse(source, file)
    for line, found in _uses(tree):
        way = "use ctx.now, the epoch's recorded clock" if found in _CLOCKS else _DERIVED
        yield f"{file}:{line}: {found} {_OTHER}: {way}"
    yield from _star_imports(tree, file)


def of_its_epoch(source: str, file: str, name: str) -> Iterator[str]:
    """`FILE:LINE: …` for each place where class `name` reads the epoch's clock, a wall clock or randomness.

    What it gives there cannot be computed again by a later epoch. Whatever name the context has, its `now` is meant.
    """
    tree = ast.parse(source, file)
    yield from (f"{file}:{line}: {found}" for line, found in _uses(tree))
    names, others = _only_imported(tree), _other_classes(tree, name)
    for node in (node for part in tree.body if part not in others for node in ast.walk(part)):
        if _is_now(node) and isinstance(node, ast.expr) and _dotted(node, names) is None:
            yield f"{file}:{node.lineno}: {ast.unparse(node)}"


def _is_now(node: ast.AST) -> bool:
    """Whether this reads an attribute `now`, other than one of the class itself."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        return any(isinstance(one, ast.Constant) and one.value == "now" for one in node.args[1:2])
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return isinstance(node, ast.Attribute) and node.attr == "now" and isinstance(node.ctx, ast.Load) and not own


def _only_imported(tree: ast.Module) -> dict[str, str]:
    """The imported names, without those that are a parameter or a variable anywhere: that may be a context."""
    own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} | set(_stored(tree))
    return {name: found for name, found in _imported(tree) if name not in own}


def _other_classes(tree: ast.Module, name: str) -> list[ast.stmt]:
    """Classes of the module that other rules name: they have a method `process`, and neither class `name` nor what the
    module does when it is imported leads to them by any name in it, or in what such a name stands for."""
    if any(_looks_up(node) for node in ast.walk(tree)):
        return []
    bound: dict[str, list[ast.stmt]] = {}
    for part in tree.body:
        for one in _bound(part):
            bound.setdefault(one, []).append(part)
    reached: set[str] = set()
    waiting = [name, *(node.id for part in _run(tree.body) for node in ast.walk(part) if isinstance(node, ast.Name))]
    names = dict(_imported(tree))
    waiting += (part.name for part in tree.body if isinstance(part, _DEFINITIONS) and _is_handed_on(part, names))
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            parts = bound.get(one, [])
            waiting += (node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name))
    return [
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name not in reached and _processes(node)
    ]


def _run(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """What runs when these statements are, apart from definitions: it may put a class where others find it."""
    for part in body:
        if isinstance(part, _DEFINITIONS):
            yield from part.decorator_list
            yield from _run(part.body) if isinstance(part, ast.ClassDef) else ()
        elif not _names_alone(part):
            yield part


def _names_alone(part: ast.stmt) -> bool:
    """Whether a statement does no more than give names to something."""
    if not isinstance(part, (ast.Assign, ast.AnnAssign)):
        return False
    targets = part.targets if isinstance(part, ast.Assign) else [part.target]
    calls = any(isinstance(node, ast.Call) for node in ast.walk(part))
    return not calls and all(isinstance(target, ast.Name) for target in targets)


def _is_handed_on(part: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, names: dict[str, str]) -> bool:
    """Whether something else gets a definition: a decorator that may keep it, or the metaclass or base of a class."""
    handed = (one.func if isinstance(one, ast.Call) else one for one in part.decorator_list)
    kept = any(_dotted(one, names) not in _KEEP_NOTHING for one in handed)
    return kept or (isinstance(part, ast.ClassDef) and bool(part.keywords))


def _looks_up(node: ast.AST) -> bool:
    """Whether this finds classes otherwise than by a name of theirs in the module."""
    names = (getattr(node, field, None) for field in ("id", "attr", "name"))
    return isinstance(node, (ast.Name, ast.Attribute, ast.FunctionDef)) and any(one in _LOOKUPS for one in names)


def _bound(part: ast.stmt) -> Iterator[str]:
    """The names that a statement of the module gives to something, at most."""
    if isinstance(part, _DEFINITIONS):
        yield part.name
        return
    yield from (node.name for node in ast.walk(part) if isinstance(node, _DEFINITIONS))
    yield from _stored(part)


def _stored(tree: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


def _processes(node: ast.ClassDef) -> bool:
    return any(isinstance(child, ast.FunctionDef) and child.name == "process" for child in node.body)


def _uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each use of a wall clock or of randomness."""
    names = dict(_imported(tree))
    for node in _outermost(tree):
        found = _dotted(node, names)
        if found and (found in _CLOCKS | _RANDOM or found.startswith(tuple(f"{one}." for one in _RANDOM_MODULES))):
            yield node.lineno, found


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Name in the module -> the dotted name that it was imported from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((one.asname or one.name.split(".")[0], one.name if one.asname else one.name.split(".")[0])
                        for one in node.names)  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)


def _outermost(tree: ast.AST) -> Iterator[ast.Attribute | ast.Name]:
    """Names with all their attributes, `a.b.c` as one, wherever they are read."""
    waiting = deque([tree])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, (ast.Attribute, ast.Name)):
            yield node
        inside = node
        while isinstance(inside, ast.Attribute):
            inside = inside.value
        waiting += ast.iter_child_nodes(inside)


def _dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    """The dotted name of the node, by the module's imports; None if it is not imported."""
    if isinstance(node, ast.Attribute):
        parent = _dotted(node.value, names)
        return parent and f"{parent}.{node.attr}"
    return names.get(node.id) if isinstance(node, ast.Name) else None


def _star_imports(tree: ast.AST, file: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in _WATCHED and any(one.name == "*" for one in node.names):
            yield f"{file}:{node.lineno}: expected names, found *: a clock or randomness could not be detected"
