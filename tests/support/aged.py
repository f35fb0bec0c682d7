"""Tables that look as if all that was done to them had been done long ago: for what goes by age."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

DAY = 86_400


def age(address: str, days: float) -> None:
    """Put back every file's time and, in log entries, when files were removed."""
    root = Path(address)
    for entry in sorted((root / "_delta_log").glob("*.json")):
        entry.write_text("\n".join(_aged(line, days) for line in entry.read_text().splitlines()) + "\n")
        entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)  # Hadoop's, of what stood there before
    then = time.time() - days * DAY
    for file in root.rglob("*"):
        os.utime(file, (then, then))


def _aged(line: str, days: float) -> str:
    action = json.loads(line)
    if "remove" in action:
        action["remove"]["deletionTimestamp"] -= int(days * DAY * 1000)
    return json.dumps(action, separators=(",", ":"))


def files(address: str) -> set[str]:
    """Data files in a table's folder."""
    return {file.name for file in Path(address).rglob("*.parquet") if "_delta_log" not in file.parts}


def entries(address: str) -> list[int]:
    """The versions whose log entries are there, in order."""
    return sorted(int(file.stem) for file in (Path(address) / "_delta_log").glob("*.json"))
