"""`--env NAME`: runs any command that reads rules in an environment."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from floodmark.cli.shared.completing import environments

GATEWAY = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it for its processes

Chosen = Annotated[
    str | None,
    typer.Option(
        "--env",
        envvar="FLOODMARK_ENV",
        help="Environment: the values of env/NAME.env, and a separate home.",
        metavar="NAME",
        autocompletion=environments,
    ),
]


def in_environment(command: Callable[..., None]) -> Callable[..., None]:
    """The same command with `--env` added. `--home` and `--master` override the values of the environment."""
    own = inspect.signature(command, eval_str=True)

    @wraps(command)
    def called(context: typer.Context, environment: str | None, **given: Any) -> None:
        from floodmark.core.rules.environments import folder_at

        with _chosen(environment):
            if environment:
                given |= _places(context, given)
            if "home" in given:
                folder_at(given["home"])
            command(**given)

    more = (("context", Parameter.empty, typer.Context), ("environment", None, Chosen))
    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=kind) for name, value, kind in more]
    called.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined]
    return called


@contextmanager
def _chosen(name: str | None) -> Iterator[None]:
    """Set FLOODMARK_ENV meanwhile, because rules are loaded by the variables of the process."""
    before = os.environ.get("FLOODMARK_ENV")
    if name:
        os.environ["FLOODMARK_ENV"] = name
    try:
        yield
    finally:
        if name and before is None:
            del os.environ["FLOODMARK_ENV"]
        elif before is not None:
            os.environ["FLOODMARK_ENV"] = before


def _places(context: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Home and master, if the command has these options and the command line doesn't set them. Raises RuleInvalid."""
    from floodmark.cli.shared.options import HOME, RULES
    from floodmark.core.rules.environments import MASTER, environment, home_of

    rules = Path(given.get("rules", RULES))
    found = environment(rules, os.environ)
    assert found is not None
    wanted, places = {name for name in given if not _by_hand(context, name)}, dict[str, Any]()
    if "home" in wanted:  # a home that is not used need not be one
        places["home"] = home_of(rules, os.environ, HOME)
    if "master" in wanted and GATEWAY not in os.environ:  # else spark-submit has started Spark, with its own master
        places["master"] = found.variables.get(MASTER, given["master"])
    return places


def _by_hand(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
