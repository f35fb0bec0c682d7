"""The keys of a target of one's own in a rule file, and what its class can do by the text of its module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from floodmark.connectors.sources.python.options import Methods, WrittenClass, check_class, methods_in, module_of
from floodmark.core.rules.kinds import CODE, SinkCan

AGAIN: Methods = {"apply": ("batch", "token")}
ONCE: Methods = {"apply": ("batch", "token", "since", "upto")}
_MAY_AGAIN: Methods = {"empty": ("token",), "remove_between": ("column", "intervals", "token"), "rows": ()}
_MAY_ONCE: Methods = {
    "position": (), "empty": ("token", "since"), "remove_between": ("column", "intervals", "token", "since"),
    "rows": (),
}  # fmt: skip


class WrittenOwn(WrittenClass):
    """A class that takes rows."""

    def address(self) -> str:
        return f"python://{f'{self.connection}/' if self.connection else ''}{self.named}"


def code_of(said: Any, folder: Path, env: Mapping[str, str]) -> str:
    """The text of the class's module. Raises ValueError and OSError, also if the class cannot be a target."""
    written = WrittenOwn.model_validate(said)
    text = module_of(written, folder, env)
    check_target_class(text, written.file, written.name)
    return text


def check_target_class(text: str, file: str, name: str) -> None:
    """Raise ValueError, with the place, if class `name` of a module's text cannot be a target."""
    if "position" in methods_in(text, file, name):
        check_class(text, file, name, ONCE, _MAY_ONCE)
    else:
        check_class(text, file, name, AGAIN, _MAY_AGAIN)


def capabilities(options: Mapping[str, Any]) -> SinkCan:
    """By the methods that the text shows. A class with `position` stores it with the rows, so each comes once."""
    written = WrittenOwn.model_validate({name: value for name, value in options.items() if name != CODE})
    methods = methods_in(str(options.get(CODE, "")), written.file, written.name)
    return SinkCan(
        qos=2 if "position" in methods else 1,
        merges=True,
        replaces="remove_between" in methods,
        empties="empty" in methods,
        target=True,
    )
