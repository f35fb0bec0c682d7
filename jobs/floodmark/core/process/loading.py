"""Loads a process class from its module's text.

The text is shipped: executors need no file, and an open epoch has its own text.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
from threading import get_ident
from types import ModuleType
from typing import Any

from floodmark.core.process.context import Declaration
from floodmark.core.text.ddl import columns_of, text_of
from floodmark.core.text.durations import parse_duration
from floodmark.errors import Refused, RuleInvalid

_forbidden: list[str] = []


def forbid(why: str) -> None:
    """Run no rule's code in this process from now on."""
    _forbidden.append(why)


def load_class(source: str, file: str, name: str) -> Any:
    """Class `name` of the module with the text `source`. Raises RuleInvalid if the module cannot be run, Refused where
    this process runs none."""
    if _forbidden:
        raise Refused(f"{file}: {name} is not run here: {_forbidden[0]}")
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    # Two rules may have modules of one name, and a module may have two texts; no thread may see one that another is
    # still running.
    known = f"_floodmark_process_{digest}_{get_ident()}"
    module = sys.modules.get(known) or _run(known, source, file)
    found = getattr(module, name, None)
    if not isinstance(found, type):
        raise RuleInvalid(f"{file}: expected a class {name}, found {found!r}")
    return found


def _run(known: str, source: str, file: str) -> ModuleType:
    module = ModuleType(known)
    module.__file__ = file
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # tracebacks show the lines
    sys.modules[known] = module  # dataclasses look their module up
    try:
        exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102 - this is what `process:` asks for
    except BaseException as fault:
        del sys.modules[known]  # half a module is none
        if not isinstance(fault, Exception | SystemExit):  # sys.exit would end the whole run, with the code 0 even
            raise
        raise RuleInvalid(f"{file}: cannot be imported: {type(fault).__name__}: {fault}") from fault
    return module


def declared_by(found: Any) -> tuple[str, Declaration]:
    """The `output` of an imported class, and what else it declares."""
    return text_of(columns_of(found.output)), Declaration(
        state={name: text_of(columns_of(ddl)) for name, ddl in getattr(found, "state", {}).items()},
        ttl_us={name: parse_duration(text) for name, text in getattr(found, "ttl", {}).items()},
        timers=hasattr(found, "on_timer"),
        clock_timers=hasattr(found, "on_clock"),
    )


def check_as_read(found: type, output: str, read: Declaration, file: str) -> None:
    """Raise RuleInvalid if an imported class declares other than what was read of its module's text.

    A decorator may have changed it, say, or a statement within an `if`.
    """
    try:
        has = declared_by(found)
    except Exception as fault:
        problem = f"{type(fault).__name__}: {fault}"
        raise RuleInvalid(
            f"{file}: expected that {found.__name__} has the declarations of its text, found {problem} {_CAUSE}"
        ) from fault
    for name, real, text in zip(_DECLARED, _listed(*has), _listed(output, read), strict=True):
        if real != text:
            raise RuleInvalid(
                f"{file}: expected that {found.__name__} has the {name} of its text, {text!r}, found {real!r} {_CAUSE}"
            )


_CAUSE = "after its module has run: assign a literal once, and let no decorator or other statement change it"
_DECLARED = ("output", "state", "ttl (in microseconds)", "method on_timer", "method on_clock")


def _listed(output: str, has: Declaration) -> tuple[Any, ...]:
    return output, has.state, has.ttl_us, has.timers, has.clock_timers
