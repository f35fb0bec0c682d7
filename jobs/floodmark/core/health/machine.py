"""Checks Python, Java, packages and jars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from floodmark.core.application.distribution import set_up
from floodmark.core.health.checks import Check, failed, ok, warning

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OLDEST_PYTHON = (3, 11)
JAVAS = ("17", "21")
SETUP = f"run `{set_up()}`"
# Spark, its client and Delta write one another's formats and overwrite one another's files.
EXACT = ("pyspark", "pyspark-client", "delta-spark")
# The minor version of deltalake decides which tables it can read; the major one of pandas, whether Spark supports it.
ALIKE = {"deltalake": 2, "pandas": 1}
TRIED = ("apache-airflow", "apache-airflow-providers-apache-spark")
PACKAGES = (*EXACT, *ALIKE, *TRIED)


def python(found: tuple[int, int, int]) -> Check:
    said = ".".join(map(str, found))
    if found[:2] >= OLDEST_PYTHON:
        return ok("Python", said)
    return failed("Python", "3.11 or newer", said, "install one, then `PYTHON=/path/to/python3 make setup`")


def java(place: str | None, report: str) -> Check:
    """`place`: the java that Spark would start; `report`: the output of `java -version`."""
    expected = f"Java {' or '.join(JAVAS)}"
    install = "install one (Debian, Ubuntu: openjdk-17-jre-headless) and name it in JAVA_HOME"
    if place is None:
        return failed("Java", expected, "no java on PATH, and JAVA_HOME is not set or has none", install)
    version = re.search(r' version "(\d+)([^"]*)"', report)
    if version is None:
        first = report.strip().partition("\n")[0] or "nothing"
        return failed("Java", expected, f"{place} says: {first}", install)
    said = f"{version[1]}{version[2]} ({place})"
    return ok("Java", said) if version[1] in JAVAS else failed("Java", expected, said, install)


def locked(requirements: str) -> dict[str, str]:
    """Package -> version, from the lock file."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", requirements, re.MULTILINE))


def packages(found: Mapping[str, str | None], wanted: Mapping[str, str]) -> list[Check]:
    """One check for each of PACKAGES; `found`: package -> installed version, None: not installed."""
    return [_package(name, found.get(name), wanted[name]) for name in PACKAGES if name in wanted]


def _package(name: str, found: str | None, wanted: str) -> Check:
    said = found or "not installed"
    if found == wanted:
        return ok(name, said)
    if name in TRIED and found is None:
        return warning(name, wanted, said, f"{SETUP}; without it rules run from the command line only")
    if name in TRIED:
        return warning(name, f"{wanted}, with which it is tested", said, SETUP)
    if name in EXACT:
        return failed(
            name, f"{wanted} (pyspark and pyspark-client share files, so their versions must be equal)", said, SETUP
        )
    if found is not None and _start(found, ALIKE[name]) == _start(wanted, ALIKE[name]):
        return warning(name, f"{wanted}, with which it is tested", said, SETUP)
    return failed(name, f"{_start(wanted, ALIKE[name])}.x", said, SETUP)


def ranges(found: Mapping[str, str | None], required: Iterable[str]) -> list[Check]:
    """As `packages`, for an installed package. `required`: what its metadata require."""
    from packaging.requirements import Requirement  # every run with Spark imports this module, and needs none

    wanted = {one.name: one for one in map(Requirement, required) if one.name in PACKAGES}
    return [_in_range(name, found.get(name), one) for name, one in wanted.items()]


def _in_range(name: str, found: str | None, wanted: Requirement) -> Check:
    expected = str(wanted.specifier)
    if found is None and wanted.marker is not None:
        return warning(name, expected, "not installed", "without it rules run from the command line only")
    if found is None or not wanted.specifier.contains(found, prereleases=True):
        return failed(name, expected, found or "not installed", f"pip install '{name}{expected}'")
    return ok(name, found)


def _start(version: str, parts: int) -> str:
    return ".".join(version.split(".")[:parts])


def sums(text: str) -> dict[str, str]:
    """File -> SHA-256, from the output of `sha256sum`."""
    return {name: digest for digest, name in (line.split() for line in text.splitlines() if line.strip())}


def jars(folder: str, found: Mapping[str, str | None], wanted: Mapping[str, str]) -> list[Check]:
    """`found`: jar -> SHA-256 of the file in `folder`, None: missing."""
    return [_jar(folder, name, found.get(name), digest) for name, digest in wanted.items()]


def _jar(folder: str, name: str, found: str | None, wanted: str) -> Check:
    if found == wanted:
        return ok(name, f"in {folder}, as published")
    if found is None:
        return failed(name, f"a file in {folder}", "none", f"{SETUP}, or name the jars' folder in FLOODMARK_JARS")
    return failed(name, f"SHA-256 {wanted}", found, f"delete it and {SETUP}; check where it came from")


def worker_python(named: str | None, version: str | None, own: str) -> Check:
    """The Python of Spark's workers; `named`: PYSPARK_PYTHON; `version`: its version, None if it cannot be started."""
    if named is None:
        return ok("PYSPARK_PYTHON", "not set: the Python that runs this is used")
    expected = f"a Python {_start(own, 2)} with pyspark, like the driver's"
    fix = "set PYSPARK_PYTHON to the python of .venv, or unset it"
    if version is None:
        return failed("PYSPARK_PYTHON", expected, f"{named}, which cannot import pyspark", fix)
    said = f"{named}, Python {version}"
    if _start(version, 2) != _start(own, 2):
        return failed("PYSPARK_PYTHON", expected, said, fix)
    return ok("PYSPARK_PYTHON", said)


def spark_home(named: str | None, version: str | None, wanted: str) -> Check:
    """`named`: SPARK_HOME; `version`: of the Spark in that folder, None if it has none."""
    if named is None or version == wanted:
        return ok("SPARK_HOME", "not set: Spark from the package pyspark" if named is None else f"{named}, {version}")
    found = f"{named}, with {f'Spark {version}' if version else 'no Spark in it'}"
    return failed("SPARK_HOME", f"not set, or Spark {wanted}", found, "unset SPARK_HOME: the package brings Spark")


def archive(path: str, exists: bool) -> Check:
    """The check of the class-data archive."""
    if exists:
        return ok("class-data archive", path)
    return warning("class-data archive", path, "none: every run starts a few seconds slower", SETUP)
