"""Options that several commands share."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from floodmark.cli.shared.completing import rule_names

RULES = Path("rules")
HOME = Path("home")
MASTER = "local[*]"

RulesDir: TypeAlias = Annotated[
    Path, typer.Option("--rules", envvar="FLOODMARK_RULES", help="Folder of the rule files.", show_default="rules")
]
HomeDir: TypeAlias = Annotated[
    Path,
    typer.Option("--home", envvar="FLOODMARK_HOME", help="Folder of ledgers and state.", show_default="./home"),
]
Master: TypeAlias = Annotated[
    str, typer.Option("--master", envvar="FLOODMARK_MASTER", help="The Spark master.", show_default="local[*]")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
RunId: TypeAlias = Annotated[
    str | None, typer.Option("--run-id", help="Name of this run in the ledger.", show_default="generated")
]
RuleName: TypeAlias = Annotated[
    str, typer.Argument(metavar="RULE", help="Name of a rule.", show_default=False, autocompletion=rule_names)
]
RuleNames: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RULE...]", help="Names of rules. Default: all.", show_default=False, autocompletion=rule_names
    ),
]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, with each field of a dataclass parameter as an option of its own."""
    own = inspect.signature(command, eval_str=True)
    kinds: dict[str, Any] = {name: one.annotation for name, one in own.parameters.items()}
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if dataclasses.is_dataclass(kind)}
    if not groups:
        return command

    @wraps(command)
    def called(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{one.name: given.pop(one.name) for one in dataclasses.fields(kind)})
        command(**given)

    found = [more for one in own.parameters.values() for more in _fields_of(one, groups.get(one.name))]
    called.__signature__ = own.replace(parameters=found)  # type: ignore[attr-defined]
    return called


def _fields_of(parameter: Parameter, group: Any) -> list[Parameter]:
    if group is None:
        return [parameter]
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in dataclasses.fields(group)
    ]
