"""The documentation site, built strictly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.snippets import CHECKOUT


def build(folder: Path) -> Path:
    # Not --quiet: that hides warnings from --strict, too.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    found = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return folder
