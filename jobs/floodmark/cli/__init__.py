"""The command line. Nothing heavy is imported before the command that needs it runs."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave the process with its exit code."""
    from floodmark.cli.app import app

    app(args=None if arguments is None else list(arguments), prog_name="floodmark")
