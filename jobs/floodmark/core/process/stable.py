"""Finds clocks and randomness in a module's text, because a replay would get another result from them.

The check knows the usual names, also behind `import … as …`. It cannot see what other modules do.
"""

from __future__ import annotations

import ast
import builtins
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

_CLOCKS = frozenset(
    """
    datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today
    time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns time.process_time
    time.process_time_ns time.localtime time.gmtime time.ctime time.strftime time.asctime
    time.clock_gettime time.clock_gettime_ns time.thread_time time.thread_time_ns os.times
    pandas.Timestamp.now pandas.Timestamp.utcnow pandas.Timestamp.today
    pyspark.sql.functions.current_timestamp pyspark.sql.functions.now pyspark.sql.functions.current_date
    pyspark.sql.functions.localtimestamp pyspark.sql.functions.unix_timestamp
    pendulum.now pendulum.today pendulum.tomorrow pendulum.yesterday
    pendulum.DateTime.now pendulum.DateTime.utcnow pendulum.DateTime.today pendulum.Date.today
    arrow.now arrow.utcnow arrow.Arrow.now arrow.Arrow.utcnow airflow.utils.timezone.utcnow
""".split()
)
_RANDOM = frozenset(
    """
    uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 uuid.uuid8 uuid.getnode os.urandom os.getrandom
    ssl.RAND_bytes
    pyspark.sql.functions.rand pyspark.sql.functions.randn pyspark.sql.functions.uuid
""".split()
)
# With so many arguments these do not read the clock, but convert the last of them.
_CONVERT = {"time.localtime": 1, "time.gmtime": 1, "time.ctime": 1, "time.asctime": 1, "time.strftime": 2}
_BY_WORD = ("pandas.Timestamp", "pandas.to_datetime", "numpy.datetime64")  # a clock if given one of these words
_WORDS = ("now", "today")
_OTHER = "gives a different answer in a replay"
_DERIVED = "derive it from the row, for example with uuid.uuid5"
_RANDOM_MODULES = ("random", "secrets", "numpy.random")
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Decorators and bases that keep no class, apart from what Python has built in.
_KEEP_NOTHING = frozenset(
    """
    dataclasses.dataclass pydantic.dataclasses.dataclass pydantic.BaseModel
    attrs.define attrs.frozen attrs.mutable attr.s attr.attrs attr.define attr.frozen attr.mutable attr.dataclass
    functools.cache functools.lru_cache functools.total_ordering functools.wraps functools.singledispatch
    contextlib.contextmanager abc.ABC abc.ABCMeta collections.namedtuple
    enum.Enum enum.IntEnum enum.StrEnum enum.Flag enum.IntFlag enum.unique
""".split()
) | {
    f"{module}.{name}"
    for module in ("typing", "typing_extensions")
    for name in "final override overload no_type_check runtime_checkable Protocol Generic NamedTuple TypedDict".split()
}
_LOOKUPS = frozenset({"globals", "eval", "exec", "__import__"})
_MODULES = frozenset({"sys.modules", "importlib.import_module", "importlib.__import__"})
_WATCHED = {name.rpartition(".")[0] for name in _CLOCKS | _RANDOM} | set(_RANDOM_MODULES)


def unstable(source: str, file: str) -> Iterator[str]:
    """`FILE:LINE: …` for each use of a wall clock or of randomness, with what to use instead."""
    tree = ast.parse(source, file)
    for line, found in _uses(tree):
        way = _DERIVED if _is_random(found) else "use ctx.now, the epoch's recorded clock"
        yield f"{file}:{line}: {found} {_OTHER}: {way}"
    yield from _star_imports(tree, file)


def of_its_epoch(source: str, file: str, name: str) -> Iterator[str]:
    """`FILE:LINE: …` for each place where class `name` reads the epoch's clock, a wall clock or randomness.

    What it gives there cannot be computed again by a later epoch. Whatever name the context has, its `now` is meant.
    """
    tree = ast.parse(source, file)
    tree.body = [part for part in tree.body if not _is_script(part)]
    yield from (f"{file}:{line}: {found}" for line, found in _uses(tree))
    names, others = _only_imported(tree), _other_classes(tree, name)
    for node in (node for part in tree.body if part not in others for node in ast.walk(part)):
        if _is_now(node) and isinstance(node, ast.expr) and _dotted(node, names) is None:
            yield f"{file}:{node.lineno}: {ast.unparse(node)}"


def _is_script(part: ast.stmt) -> bool:
    """Whether a statement does nothing when the module is imported: `if __name__ == "__main__":`."""
    return isinstance(part, ast.If) and not part.orelse and ast.unparse(part.test) == "__name__ == '__main__'"


def _is_now(node: ast.AST) -> bool:
    """Whether this reads an attribute `now`, other than one of the class itself."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        return any(isinstance(one, ast.Constant) and one.value == "now" for one in node.args[1:2])
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return isinstance(node, ast.Attribute) and node.attr == "now" and isinstance(node.ctx, ast.Load) and not own


def _only_imported(tree: ast.Module) -> dict[str, str]:
    """The imported names, without those that are a parameter or a variable anywhere: that may be a context."""
    own = _own(tree)
    return {name: found for name, found in _imported(tree) if name not in own}


def _own(tree: ast.Module) -> set[str]:
    """Names of parameters and variables anywhere."""
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} | set(_stored(tree))


def _other_classes(tree: ast.Module, name: str) -> list[ast.stmt]:
    """Classes of the module that other rules name: they have a method `process`, and neither class `name` nor what the
    module does when it is imported leads to them by any name in it, or in what such a name stands for."""
    names, lookups = dict(_imported(tree)), _LOOKUPS - _own(tree)
    if any(_looks_up(node, names, lookups) for node in ast.walk(tree)):
        return []
    bound: dict[str, list[ast.stmt]] = {}
    for part in tree.body:
        for one in _bound(part):
            bound.setdefault(one, []).append(part)
    reached: set[str] = set()
    waiting = [name, *(node.id for part in _run(tree.body) for node in ast.walk(part) if isinstance(node, ast.Name))]
    waiting += _handed_on([part for part in tree.body if isinstance(part, _DEFINITIONS)], names, bound)
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


def _handed_on(parts: Sequence[Definition], names: dict[str, str], bound: dict[str, list[ast.stmt]]) -> set[str]:
    """The definitions that something else gets: a decorator that may keep them, or a metaclass or base, also of their
    bases."""
    classes = [part for part in parts if isinstance(part, ast.ClassDef)]
    built_in = set(dir(builtins)) - names.keys() - bound.keys()
    own = {one for one, by in bound.items() if all(isinstance(part, ast.ClassDef) for part in by)} - names.keys()
    found = {one.name for one in parts if not all(_keeps_nothing(by, names, built_in) for by in one.decorator_list)}
    for one in classes:
        more = [by.value for by in one.keywords if by.arg != "total"]  # of a TypedDict
        keeps = any("__init_subclass__" in _bound(part) for part in one.body)
        keeps = keeps or not all(_keeps_nothing(by, names, built_in) for by in more)
        if keeps or not all(_keeps_nothing(base, names, built_in | own) for base in one.bases):
            found.add(one.name)
    while heirs := {one.name for one in classes if one.name not in found and _names_of(one.bases) & found}:
        found |= heirs
    return found


def _keeps_nothing(node: ast.expr, names: dict[str, str], known: Collection[str]) -> bool:
    """Whether a decorator, base or metaclass keeps no class that it gets. known: names of the module that keep none."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return (isinstance(node, ast.Name) and node.id in known) or _dotted(node, names) in _KEEP_NOTHING


def _names_of(nodes: Iterable[ast.expr]) -> set[str]:
    return {node.id for one in nodes for node in ast.walk(one) if isinstance(node, ast.Name)}


def _looks_up(node: ast.AST, names: dict[str, str], lookups: Collection[str]) -> bool:
    """Whether this finds classes otherwise than by a name of theirs in the module."""
    if isinstance(node, ast.Call):  # `vars(row)` has but the fields of a row
        return isinstance(node.func, ast.Name) and node.func.id == "vars" and not node.args
    if isinstance(node, ast.Name) and node.id in lookups:
        return True
    found = isinstance(node, (ast.Attribute, ast.Name)) and _dotted(node, names) in _MODULES
    return found or (isinstance(node, ast.Attribute) and node.attr == "__subclasses__")


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
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in _outermost(tree):
        found, call = _dotted(node, names), calls.get(id(node))
        if found and (_is_random(found) or (found in _CLOCKS and not _converts(found, call))):
            yield node.lineno, found
        elif found in _BY_WORD and call is not None and (word := _word(call)):
            yield node.lineno, f"{found}({word!r})"


def _is_random(found: str) -> bool:
    return found in _RANDOM or found.startswith(tuple(f"{one}." for one in _RANDOM_MODULES))


def _converts(found: str, call: ast.Call | None) -> bool:
    """Whether a call converts the time that it is given; None, or `*times`, may leave it to the clock."""
    if call is None or len(call.args) != _CONVERT.get(found):
        return False
    return not any(isinstance(one, ast.Starred) or ast.unparse(one) == "None" for one in call.args)


def _word(call: ast.Call) -> str | None:
    """The word by which a call asks for the clock."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return next((str(one.value) for one in given if isinstance(one, ast.Constant) and one.value in _WORDS), None)


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
