"""A Docker engine: the one that answers, or one that is started for as long as the tests need it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOOLS = "FLOODMARK_CONTAINERS"
LIMIT = 1800.0  # seconds for one command; an image is built in three minutes on two quiet cores


def run(*command: str, check: bool = True, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Raises AssertionError with the command's last lines if it fails and `check` is set."""
    found = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=env, check=False)
    assert found.returncode == 0 or not check, f"{' '.join(command)}: {found.stdout[-4000:]}{found.stderr[-4000:]}"
    return found


def answers() -> bool:
    """Whether there are an engine, Compose 2 and BuildKit."""
    asked = (("docker", "version"), ("docker", "compose", "version"), ("docker", "buildx", "version"))
    return shutil.which("docker") is not None and all(run(*one, check=False).returncode == 0 for one in asked)


@contextmanager
def engine() -> Iterator[None]:
    """An engine that answers. Fails, and says what to do, if there is none and none can be started."""
    if answers():
        yield
        return
    folder = os.environ.get(TOOLS)
    assert folder, (
        "expected a Docker engine with Compose 2 and Buildx that answers `docker version`, found none: start one, or "
        f"set {TOOLS} to a folder with engine.sh (install, start, stop) and base_images.sh"
    )
    for words in (("engine.sh", "install"), ("engine.sh", "start"), ("base_images.sh",)):
        run(str(Path(folder) / words[0]), *words[1:])
    try:
        yield
    finally:
        run(str(Path(folder) / "engine.sh"), "stop")
