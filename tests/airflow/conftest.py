"""Airflow for tests: settings and files of its own in the checkout's cache, set before anything imports Airflow."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
sys.path.insert(0, str(CHECKOUT / "scripts"))

import airflow_env  # noqa: E402 - found through the line above

SECRET = "of tests only, " * 5  # as long as the key of a token has to be
FOLDER = CHECKOUT / ".cache" / f"airflow-tests-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
FOLDER.mkdir(parents=True, exist_ok=True)
for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
    del os.environ[name]
settings = airflow_env.environment(FOLDER, FOLDER, FOLDER, FOLDER, airflow_env.Ports(), SECRET)
# The settings of Floodmark and Spark are each test's own.
os.environ.update({name: value for name, value in settings.items() if name.startswith("AIRFLOW")})


@pytest.fixture
def rules(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty rules folder that Floodmark's settings point to, with a home and a lake beside it."""
    for variable, folder in (("FLOODMARK_RULES", "rules"), ("FLOODMARK_HOME", "home"), ("LAKE", "lake")):
        (place / folder).mkdir()
        monkeypatch.setenv(variable, str(place / folder))
    return place / "rules"


@pytest.fixture
def fake_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on PATH."""
    folder = place / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture(scope="session")
def metadata() -> None:
    """Airflow's metadata database, made where there is none."""
    from airflow.utils.db import initdb

    initdb()
