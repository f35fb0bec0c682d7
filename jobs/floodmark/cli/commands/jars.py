"""`floodmark jars`: fetch the jars of Delta, Kafka and Avro, once for each Python environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from floodmark.cli.shared import output


def jars(
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Copy the jars from this folder; use no network."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Delete the jars, before you uninstall Floodmark.")] = False,
) -> None:
    """Fetch the jars of Delta, Kafka and Avro for Spark, and check their SHA-256.

    They are stored in `share/floodmark/jars` of the Python environment, or in `FLOODMARK_JARS`. Spark's own resolver
    fetches them, with your settings for mirrors. A second call changes nothing.

    Example: `floodmark jars`, `floodmark jars --from /mnt/jars`
    """
    from floodmark.core.application.distribution import jars_folder
    from floodmark.spark.session import jars as files

    folder = jars_folder()
    if remove:
        for file in files.remove(folder):
            output.say(f"deleted {file}")
        return
    if not files.are_complete(folder):
        if source is not None:
            files.copy(source, folder)
        else:
            output.say(f"fetching the jars of Delta, Kafka and Avro into {folder}")
            files.fetch(folder)
    output.say(f"the jars of Delta, Kafka and Avro are in {folder}, as published")
