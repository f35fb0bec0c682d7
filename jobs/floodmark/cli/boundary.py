"""Where errors become one line on standard error and an exit code."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

import typer
from typer._click.exceptions import UsageError
from typer.core import TyperGroup

from floodmark.cli import output
from floodmark.errors import exit_code, message


class Commands(TyperGroup):
    """Commands whose errors are told without a traceback, unless FLOODMARK_DEBUG=1 asks for it."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        words = [*ctx._protected_args, *ctx.args]
        try:
            return super().invoke(ctx)
        except UsageError as fault:
            output.complain(_usage(fault, words))
            raise typer.Exit(2) from None
        except Exception as fault:
            if _of_typer(fault) or os.environ.get("FLOODMARK_DEBUG") == "1":
                raise
            output.complain(message(fault))
            raise typer.Exit(exit_code(fault)) from None


def _usage(fault: UsageError, words: Sequence[str]) -> str:
    """What is wrong with the command line, what was found, and where to read on."""
    said = fault.format_message().rstrip(".").replace("Input should be", "expected")
    said = (
        said.replace(" (Possible options: ", ": did you mean ").replace(". Did you mean", ": did you mean").rstrip(")")
    )
    param = getattr(fault, "param", None)
    given = _value([*param.opts], words) if param is not None else None
    found = f", found {given!r}" if given is not None and ", found " not in said else ""
    command = fault.ctx.command_path if fault.ctx is not None else "floodmark"
    return (
        f"{said[:1].lower()}{said[1:]}{found}{'' if said.endswith('?') else '.'} `{command} --help` says what there is"
    )


def _value(options: Sequence[str], words: Sequence[str]) -> str | None:
    """What the command line has after one of these options."""
    for word, after in zip(words, [*words[1:], None], strict=True):
        name, mark, value = word.partition("=")
        if name in options:
            return value if mark else after
    return None


def _of_typer(fault: Exception) -> bool:
    """Usage errors, exits and a closed pipe are typer's to tell."""
    closed = isinstance(fault, OSError) and fault.errno == errno.EPIPE
    return closed or type(fault).__module__.startswith("typer")


class DeadCommands(TyperGroup):
    """`dead list RULE`, and `dead RULE list` for those who name the rule first."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        words = [at for at, word in enumerate(args) if not word.startswith("-")][:2]
        if len(words) == 2 and args[words[0]] not in self.commands and args[words[1]] in self.commands:
            first, second = words
            args = [*args]
            args[first], args[second] = args[second], args[first]
        return super().parse_args(ctx, args)
