"""The command line. Nothing heavy is imported before the command that needs it runs."""

from __future__ import annotations

from collections.abc import Sequence

INTERRUPTED = 130  # the exit code after Ctrl-C


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave the process with its exit code."""
    try:
        from floodmark.cli.app import app

        app(args=None if arguments is None else list(arguments), prog_name="floodmark")
    except KeyboardInterrupt:  # before the command began, which handles it from then on
        raise SystemExit(INTERRUPTED) from None
