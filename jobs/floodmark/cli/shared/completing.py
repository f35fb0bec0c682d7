"""Shell completion of names. Reads only file names, because the user waits for it."""

from __future__ import annotations

import os
from pathlib import Path

import typer


def rule_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the rules in the folder, and of homes, which may have no rule file any more."""
    rules = _place(context, "rules", "FLOODMARK_RULES", "rules")
    home = _place(context, "home", "FLOODMARK_HOME", "home")
    names = {path.stem for path in _inside(rules) if path.suffix in (".yaml", ".yml")}
    names |= {path.name for path in _inside(home) if (path / "ledger").is_dir()}
    return sorted(name for name in names if name.startswith(incomplete) and name[0] not in "._")


def environments(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the environments that have a file beside the folder of rules."""
    folder = _place(context, "rules", "FLOODMARK_RULES", "rules").absolute().parent / "env"
    names = (path.stem for path in _inside(folder) if path.suffix == ".env")
    return sorted(name for name in names if name.startswith(incomplete))


def _place(context: typer.Context, option: str, variable: str, default: str) -> Path:
    """The value from the command line so far, or else from the environment."""
    return Path(context.params.get(option) or os.environ.get(variable) or default)


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
