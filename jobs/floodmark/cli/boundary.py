"""Where errors become one line on standard error and an exit code."""

from __future__ import annotations

import errno
import os
from typing import Any

import typer
from typer.core import TyperGroup

from floodmark.cli import output
from floodmark.errors import exit_code, message


class Commands(TyperGroup):
    """Commands whose errors are told without a traceback, unless FLOODMARK_DEBUG=1 asks for it."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except Exception as fault:
            if _of_typer(fault) or os.environ.get("FLOODMARK_DEBUG") == "1":
                raise
            output.complain(message(fault))
            raise typer.Exit(exit_code(fault)) from None


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
