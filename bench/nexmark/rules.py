"""Load the questions as Floodmark rules, one file each.

The description in each file says how it differs from Nexmark's own text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from floodmark.core.rules.rule import Rule, load_rule

FILES = Path(__file__).parent / "rules"
NAMES = sorted((file.stem for file in FILES.glob("q*.yaml")), key=lambda name: int(name[1:]))


def rule_of(name: str, folder: Path, tables: Path, **settings: Any) -> Rule:
    """The rule over the tables below `tables`, its sink `folder`/out/NAME. Raises RuleInvalid."""
    environment = {"NEXMARK": str(tables), "OUT": str(folder / "out")}
    text = yaml.safe_load((FILES / f"{name}.yaml").read_text(encoding="utf-8")) | settings
    for stream in text["streams"].values():
        stream["start"] = {"version": 1}  # commit by commit: a first snapshot would hold the watermark back
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(text, sort_keys=False))
    return load_rule(path, {**os.environ, **environment})
