"""Reads files that others wrote: only plain ones of a bounded size, and no links that lead out of their folder."""

from __future__ import annotations

from pathlib import Path

MAX_CHARACTERS = 1_000_000


def read_plain(file: Path, folder: Path | None = None) -> str:
    """The file's text; with `folder`, the file must lie in it once links are followed.

    Raises ValueError and OSError.
    """
    real = file.resolve(strict=True)
    if folder is not None and not real.is_relative_to(folder.resolve()):
        raise ValueError(f"expected a file in {folder}, found a link that leads outside")
    if not real.is_file():  # opening a pipe would wait for its writer
        raise ValueError("expected a plain file")
    with real.open(encoding="utf-8") as opened:
        text = opened.read(MAX_CHARACTERS + 1)
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"expected at most {MAX_CHARACTERS} characters, found more")
    return text


def file_instead_of_folder(path: Path) -> Path | None:
    """The file that stands where the path needs a folder; None if no file is in its way."""
    there = next((one for one in (path, *path.parents) if one.exists()), None)
    return None if there is None or there.is_dir() else there
