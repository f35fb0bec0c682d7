"""Turns errors into one line on standard error and an exit code."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from floodmark.cli.shared import output
from floodmark.errors import exit_code, message

WORDS = "floodmark.words"  # of the command line, as they were typed


class Commands(TyperGroup):
    """Commands that report errors without a traceback, unless FLOODMARK_DEBUG=1."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.meta[WORDS] = [*args]
        with _mistyped(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            with _mistyped(ctx):
                return super().invoke(ctx)
        except Exception as fault:
            if _of_typer(fault) or os.environ.get("FLOODMARK_DEBUG") == "1":
                raise
            output.print_error(message(fault))
            raise typer.Exit(exit_code(fault)) from None


@contextmanager
def _mistyped(ctx: typer.Context) -> Iterator[None]:
    """Report errors in the command line in the style of other errors."""
    try:
        yield
    except typer.TyperException as fault:
        command, said = getattr(fault, "ctx", None), str(getattr(fault, "format_message", str)())
        if command is None or not said:  # a command without arguments, which shows its help
            raise
        param = getattr(fault, "param", None)
        given = _value(param.opts, ctx.meta[WORDS]) if param is not None else None
        output.print_error(f"{_ours(said, given)} See `{command.command_path} --help`")
        raise typer.Exit(2) from None


def _ours(said: str, given: str | None) -> str:
    """Typer's message in our style: what was expected, and what was found (`given`)."""
    said = said[:1].lower() + said[1:].rstrip(".").replace("Input should be", "expected")
    said = re.sub(r" \(Possible options: (.*)\)$", r": did you mean \1?", said).replace(
        ". Did you mean", ": did you mean"
    )
    found = f", found {given!r}" if given is not None and ", found " not in said else ""
    return f"{said}{found}{'' if said.endswith('?') else '.'}"


def _value(options: Sequence[str], words: Sequence[str]) -> str | None:
    """The value that the command line gives to one of these options."""
    for word, after in zip(words, [*words[1:], None], strict=True):
        name, mark, value = word.partition("=")
        if name in options:
            return value if mark else after
    return None


def _of_typer(fault: Exception) -> bool:
    """Whether Typer handles the error itself: usage errors, exits and a closed pipe."""
    closed = isinstance(fault, OSError) and fault.errno == errno.EPIPE
    return closed or type(fault).__module__.startswith("typer")


class DeadCommands(TyperGroup):
    """`dead list RULE`; also accepts `dead RULE list`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        words = [at for at, word in enumerate(args) if not word.startswith("-")][:2]
        if len(words) == 2 and args[words[0]] not in self.commands and args[words[1]] in self.commands:
            first, second = words
            args = [*args]
            args[first], args[second] = args[second], args[first]
        return super().parse_args(ctx, args)
