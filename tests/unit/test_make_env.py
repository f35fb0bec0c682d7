"""docker/make_env.sh: fresh secrets, for one user alone, and never in place of others."""

from __future__ import annotations

import shutil
import subprocess
from base64 import urlsafe_b64decode
from pathlib import Path

import pytest

DOCKER = Path(__file__).parents[2] / "docker"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "docker").mkdir()
    for name in ("make_env.sh", ".env.example"):
        shutil.copy(DOCKER / name, tmp_path / "docker" / name)
    return tmp_path


def made(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "docker/make_env.sh"], cwd=checkout, capture_output=True, text=True, check=False)


def values(checkout: Path) -> dict[str, str]:
    lines = (checkout / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_every_secret_is_filled_in_and_another_each_time(checkout: Path) -> None:
    assert made(checkout).returncode == 0
    first = values(checkout)
    assert set(first) == {line[:-1] for line in (DOCKER / ".env.example").read_text().splitlines() if line[-1:] == "="}
    assert len(urlsafe_b64decode(first.pop("FERNET_KEY"))) == 32
    assert all(len(value) == 48 and value.isalnum() for value in first.values())
    (checkout / ".env").unlink()
    made(checkout)
    assert not set(values(checkout).values()) & set(first.values())


def test_its_user_alone_can_read_it(checkout: Path) -> None:
    made(checkout)
    assert (checkout / ".env").stat().st_mode & 0o777 == 0o600


def test_secrets_that_are_in_use_stay(checkout: Path) -> None:
    (checkout / ".env").write_text("POSTGRES_PASSWORD=kept\n")
    found = made(checkout)
    assert found.returncode == 2
    assert "expected no .env, found one" in found.stderr
    assert (checkout / ".env").read_text() == "POSTGRES_PASSWORD=kept\n"
