"""Finds clocks and randomness in a module's text, because a replay would get another result from them.

The check knows the usual names, also behind `import … as …`. It cannot see what other modules do.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator

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
_RANDOM_MODULES = ("random", "secrets", "numpy.random")
_WATCHED = {name.rpartition(".")[0] for name in _CLOCKS | _RANDOM} | set(_RANDOM_MODULES)


def unstable(source: str, file: str) -> Iterator[str]:
    """`FILE:LINE: …` for each use of a wall clock or of randomness, with what to use instead."""
    tree = ast.parse(source, file)
    names = dict(_imported(tree))
    for node in _outermost(tree):
        found = _dotted(node, names)
        if found in _CLOCKS:
            yield f"{file}:{node.lineno}: {found} {_OTHER}: use ctx.now, the epoch's recorded clock"
        elif found and (found in _RANDOM or found.startswith(tuple(f"{module}." for module in _RANDOM_MODULES))):
            yield f"{file}:{node.lineno}: {found} {_OTHER}: derive it from the row, for example with uuid.uuid5"
    yield from _star_imports(tree, file)


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
