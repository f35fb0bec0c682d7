"""The wheel in an Airflow that has a DAG and a plugin of its own: installed, run, upgraded and uninstalled.

By pip, for each Python that Floodmark supports and this machine has.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.installed import CHECKOUT, LOCKED, Installed, built

from floodmark import __version__
from floodmark.core.application.sparkconf import JARS

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]
EARLIER = "0.0.1"
MOST_BYTES, MOST_SECONDS = 2 << 20, 0.15
LATER = """at = [d.datetime(2026, 1, 2, tzinfo=d.UTC)]
deltalake.write_deltalake("{events}", pa.table({{"at": at, "kind": ["z"]}}), mode="append")"""
IMPORT = "import time; t = time.perf_counter(); import floodmark; print(time.perf_counter() - t)"


def pythons() -> list[str]:
    """The supported Pythons of this machine. One that runs these tests is there, so there is always one."""
    found = []
    for minor in (11, 12, 13):
        for place in (shutil.which(f"python3.{minor}"), sys.executable):
            said = "import sys; print(f'3.{sys.version_info[1]}')"
            if place and subprocess.run([place, "-c", said], capture_output=True, text=True).stdout == f"3.{minor}\n":
                found.append(place)
                break
    return found


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel of an earlier version, and that of this checkout."""
    root = tmp_path_factory.mktemp("wheels")
    earlier = root / "earlier"
    for name in ("jobs", "plugins"):
        shutil.copytree(CHECKOUT / name, earlier / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(CHECKOUT / name, earlier / name)
    version = earlier / "jobs/floodmark/__init__.py"
    version.write_text(version.read_text().replace(__version__, EARLIER))
    return built(earlier, root / "0"), built(CHECKOUT, root / "1")


@pytest.fixture(params=pythons())
def installed(request: pytest.FixtureRequest, place: Path) -> Installed:
    """Not in /tmp, where no home may be."""
    return Installed(place, request.param)


def test_the_wheel_is_small_and_has_nothing_of_tests_or_caches(wheels: tuple[Path, Path]) -> None:
    wheel = wheels[1]
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert wheel.stat().st_size <= MOST_BYTES
    top = {name.partition("/")[0] for name in names}
    assert top == {"floodmark", "floodmark_airflow", f"floodmark-{__version__}.dist-info"}
    assert [name for name in names if re.search(r"test_|conftest|/fakes|__pycache__|\.pyc|bench", name)] == []


def test_from_an_empty_environment_to_a_green_rule_upgraded_and_uninstalled(
    installed: Installed, wheels: tuple[Path, Path]
) -> None:
    call = installed.call
    call("pip", "install", "-q", f"apache-airflow=={LOCKED['apache-airflow']}")
    call("airflow", "db", "migrate")
    call("pip", "install", "-q", f"{wheels[0]}[airflow]")
    call("pip", "check")
    assert float(call("python", "-c", IMPORT)) <= MOST_SECONDS
    call("floodmark", "jars")
    call("floodmark", "airflow", "init")
    place = installed.root / "airflow" / "floodmark"
    make_input(installed, place / "rules" / "hello.yaml")
    green(installed, place, rows=2)

    call("pip", "install", "-q", f"{wheels[1]}[airflow]")
    call("floodmark", "jars")
    assert "already exists" in call("floodmark", "airflow", "init")
    events = str(place / "lake" / "events")
    call("python", "-c", f"import datetime as d, pyarrow as pa, deltalake; {LATER.format(events=events)}")
    green(installed, place, rows=3)
    assert "floodmark" in call("airflow", "providers", "list", "-o", "plain")

    call("floodmark", "airflow", "remove")
    call("floodmark", "jars", "--remove")
    call("pip", "uninstall", "-q", "-y", "floodmark")
    assert [file for file in installed.files() if "floodmark" in file or Path(file).name in JARS] == []
    assert {file.name for file in (installed.root / "airflow" / "dags").glob("*.py")} == {"mine.py"}
    assert (place / "lake" / "hello").is_dir(), "results are the user's"


def make_input(installed: Installed, rule: Path) -> None:
    """By the snippet at the head of the rule file, as its reader would."""
    lines = re.findall(r"^#   (.*)$", rule.read_text(), re.MULTILINE)
    script = "\n".join(lines[lines.index("python - <<'EOF'") + 1 : lines.index("EOF")])
    installed.call("python", "-c", script)


def green(installed: Installed, place: Path, rows: int) -> None:
    """The DAG runs to its end by Airflow's own task runner, and the sink has so many rows."""
    said = installed.call("airflow", "dags", "test", "rule.hello")
    assert "state=success" in said, said[-3000:]
    places = ("--rules", str(place / "rules"), "--home", str(place / "home"))
    found = installed.call("floodmark", "sql", "hello", "SELECT count(*) AS n FROM hello", "--json", *places)
    assert json.loads(found)["rows"] == [[rows]]
    audited = installed.call("floodmark", "audit", "hello", "--deep", "--json", *places[2:])
    assert '"verdict": "proven"' in audited, audited
    assert "mine" in installed.call("airflow", "plugins", "-o", "plain")
