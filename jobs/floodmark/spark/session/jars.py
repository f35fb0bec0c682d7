"""The jars of Delta, Kafka and Avro: fetched by Spark's own resolver or copied from a folder, and checked before use.

Spark's resolver follows the user's settings for repositories, as `--packages` does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from floodmark.core.application.distribution import JAR_SUMS
from floodmark.core.application.sparkconf import AVRO_JARS, DELTA_JARS, JARS, KAFKA_JARS, jar_name, java_place
from floodmark.core.health.machine import sums
from floodmark.errors import Refused, RunFailed

PACKAGES = (*DELTA_JARS, *KAFKA_JARS, *AVRO_JARS)
# All other dependencies are either in Spark already (another version would conflict) or unused.
EXCLUDED = ",".join(
    f"{group}:*" for group in ("io.unitycatalog", "org.antlr", "org.scala-lang*", "org.slf4j", "org.lz4", "org.xerial*",
                               "org.apache.hadoop", "at.yawk*", "com.*")
) + ",io.delta:delta-kernel*"  # fmt: skip
REPOSITORIES = """Spark could not resolve the jars:
{log}
DEFAULT_ARTIFACT_REPOSITORY names a mirror; so do spark.jars.ivySettings and spark.jars.repositories in
$SPARK_CONF_DIR/spark-defaults.conf. Without a network: `floodmark jars --from FOLDER`, with copies of {names}"""


def are_complete(folder: Path) -> bool:
    """Whether all jars are in the folder. Raises Refused if one of them is not what was published."""
    return {_is_published(folder / name, name) for name in JARS} == {True}  # looks at each, unlike `all`


def published() -> dict[str, str]:
    """Jar -> SHA-256, as published."""
    return sums(JAR_SUMS.read_text())


def digest(file: Path) -> str | None:
    """The SHA-256 of the file; None if there is none."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def copy(source: Path, folder: Path) -> None:
    """Copy the jars from another folder. Raises Refused if one is missing there, or is not what was published."""
    missing = [name for name in JARS if not (source / name).is_file()]
    if missing:
        raise Refused(f"expected {', '.join(JARS)} in {source}, found no {' and no '.join(missing)}")
    _take({name: source / name for name in JARS}, folder)


def fetch(folder: Path) -> None:
    """Resolve the jars into the folder. Raises RunFailed with the end of Spark's log if that fails."""
    if java_place() is None:
        raise Refused("expected Java 17 or 21 for Spark's resolver, found no java on PATH and none in JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="floodmark-jars-") as work:
        found = resolved(PACKAGES, EXCLUDED, Path(work))
        _take({name: file for name, file in found.items() if name in JARS}, folder)


def resolved(packages: Sequence[str], excluded: str, work: Path) -> dict[str, Path]:
    """The jars of packages and of what they need, by file name, below the folder `work`.

    Raises RunFailed with the end of Spark's log if one of the packages cannot be had.
    """
    done = subprocess.run(  # noqa: S603
        _command(packages, excluded, work), cwd=work, env=_environment(work), text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    found = {file.name.partition("_")[2]: file for file in (work / "ivy" / "jars").glob("*.jar")}
    missing = {jar_name(one) for one in packages} - set(found)
    if done.returncode != 0 or missing:
        log = "\n".join(done.stdout.splitlines()[-40:])
        raise RunFailed(REPOSITORIES.format(log=log, names=", ".join(map(jar_name, packages))))
    return found


def remove(folder: Path) -> list[Path]:
    """Delete the jars, and the folder if nothing else is in it. Returns what was deleted."""
    found = [folder / name for name in JARS if (folder / name).is_file()]
    for file in found:
        file.unlink()
    for empty in (folder, folder.parent) if found else ():
        if empty.is_dir() and not any(empty.iterdir()):
            empty.rmdir()
    return found


def _take(files: dict[str, Path], folder: Path) -> None:
    """Copy checked files; each gets its name only when it is complete."""
    for name, file in files.items():
        _is_published(file, name)
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        part = folder / f".{name}.{os.getpid()}"
        shutil.copyfile(file, part)
        part.replace(folder / name)


def _is_published(file: Path, name: str) -> bool:
    """Whether the file is the jar `name`; False if there is no file. Raises Refused if it is anything else."""
    wanted, found = published()[name], digest(file)
    if found not in (None, wanted):
        raise Refused(
            f"SHA-256 of {file}: expected {wanted}, found {found}. Nothing was copied. Delete the file if it is "
            "yours, and check that it came from the repository you meant"
        )
    return found is not None


def _command(packages: Sequence[str], excluded: str, work: Path) -> list[str]:
    script = work / "nothing.py"  # spark-submit resolves packages before it runs a program
    script.touch()
    return [
        str(Path(_spark_home()) / "bin" / "spark-submit"),
        *("--master", "local[1]", "--deploy-mode", "client", "--conf", f"spark.jars.ivy={work / 'ivy'}"),
        *("--packages", ",".join(packages), "--exclude-packages", excluded, str(script)),
    ]


def _spark_home() -> str:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise Refused(f"expected the package pyspark next to {sys.executable}, found none: reinstall Floodmark")
    return spec.submodule_search_locations[0]


def _environment(work: Path) -> dict[str, str]:
    """Spark's settings are those of the user's own Spark, if there is one; the program is pyspark's."""
    own = os.environ.get("SPARK_HOME")
    conf = os.environ.get("SPARK_CONF_DIR") or (str(Path(own, "conf")) if own else None)
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    # Spark looks into ~/.m2 first, and fails on a POM there whose jar is missing; so home is an empty folder here. A
    # user with Ivy settings has said where to look, and keeps the home folder.
    if conf is None or not _names_ivy_settings(Path(conf) / "spark-defaults.conf"):
        options = f'{options} -Duser.home="{work}"'
    return {
        **os.environ,
        **({"SPARK_CONF_DIR": conf} if conf else {}),
        "SPARK_HOME": _spark_home(),
        "SPARK_SUBMIT_OPTS": options,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _names_ivy_settings(defaults: Path) -> bool:
    if not defaults.is_file():
        return False
    return any(line.strip().startswith("spark.jars.ivySettings") for line in defaults.read_text().splitlines())
