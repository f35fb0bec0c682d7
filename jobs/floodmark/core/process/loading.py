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
