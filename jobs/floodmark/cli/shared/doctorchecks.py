"""Collects the facts that `floodmark doctor` checks. `core.health` decides what they mean."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

from floodmark.cli.shared import options
from floodmark.core.application import distribution, sparkconf
from floodmark.core.health import airflow, machine, settings, storage
from floodmark.core.health.checks import Check, failed, ok
from floodmark.core.health.storage import Holder
from floodmark.core.lifecycle.retention import Limit
from floodmark.core.rules.environments import variables
from floodmark.core.rules.rule import Rule, load_rules
from floodmark.core.text.addresses import location
from floodmark.errors import FloodmarkError, message
from floodmark.ledger.holder import CORRECTING, RELAY, holder_pid, holder_text, is_orphan, owner_file, target_of
from floodmark.ledger.home import Home, check_home
from floodmark.ledger.ledger import LedgerReader, ledger_in
from floodmark.spark.session import jars
from floodmark.views.status.rulestatus import limits_of

PATIENCE = 60  # seconds to wait for another program


def all_checks(rules: Path, home: Path) -> list[Check]:
    """All checks that need no JVM. An error in one of them hides no other."""
    good: dict[str, Rule] = {}
    rule_checks = _checked("rules", lambda: _rules(rules, good))
    return [
        *rule_checks,
        *(check for look in _checks(rules, home, list(good.values())) for check in _checked(*look)),
    ]


def _checks(folder: Path, home: Path, rules: list[Rule]) -> Iterator[tuple[str, Callable[[], list[Check]]]]:
    yield "Python", lambda: [machine.python(sys.version_info[:3])]
    yield "Java", lambda: [_java()]
    yield "packages", _packages
    yield "jars", _jars
    yield "PYSPARK_PYTHON", lambda: [_worker_python(), _spark_home()]
    yield "home", lambda: [_home(home, max((rule.qos for rule in rules), default=2))]
    yield "room", lambda: list(_room(home, rules))
    yield "ledgers", lambda: storage.ledgers({rule.rule: _ledger(home, rule.rule) for rule in rules})
    yield "input", lambda: storage.unread({rule.rule: _unread(home, rule) for rule in rules})
    yield "locks", lambda: storage.locks(_holders(home))
    yield "settings", lambda: _settings(folder)
    yield "Airflow", _airflow


def _checked(name: str, look: Callable[[], list[Check]]) -> list[Check]:
    try:
        return look()
    except (OSError, ValueError, subprocess.SubprocessError, FloodmarkError) as fault:
        return [failed(name, "an answer", message(fault), "fix that, then run `floodmark doctor` again")]


# --- Machine


def _java() -> Check:
    place = sparkconf.java_place()
    return machine.java(place, _program_output(place, "-version") if place else "")


def _program_output(*command: str) -> str:
    """The output of a program, on both streams. The environment names it; Spark would start it, too."""
    found = subprocess.run(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False
    )
    return found.stdout


def _packages() -> list[Check]:
    root, found = distribution.checkout(), {name: _version(name) for name in machine.PACKAGES}
    if root is not None:
        return machine.packages(found, machine.locked((root / "requirements.txt").read_text()))
    return machine.ranges(found, metadata.requires("floodmark") or [])


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _jars() -> list[Check]:
    folder, archive = distribution.jars_folder(), sparkconf.archive()
    wanted = jars.published()
    found = machine.jars(str(folder), {name: jars.digest(folder / name) for name in wanted}, wanted)
    return [*found, *([machine.archive(str(archive), archive.exists())] if distribution.checkout() else [])]


def _worker_python() -> Check:
    named, own = os.environ.get("PYSPARK_PYTHON") or None, platform.python_version()
    if not named or Path(named).absolute() == Path(sys.executable):
        return machine.worker_python(named, own, own)
    return machine.worker_python(named, _python_version(named), own)


def _python_version(program: str) -> str | None:
    """None if the program can't be started, or has no pyspark."""
    said = 'import platform, pyspark; print("Python", platform.python_version())'
    try:
        word, _, version = _program_output(program, "-c", said).strip().rpartition("\n")[2].partition(" ")
    except OSError:
        return None
    return version if word == "Python" else None


def _spark_home() -> Check:
    named, prefix = os.environ.get("SPARK_HOME"), "spark-core_2.13-"
    cores = sorted(Path(named, "jars").glob(f"{prefix}*.jar")) if named else []
    return machine.spark_home(named, cores[0].stem.removeprefix(prefix) if cores else None, _version("pyspark") or "")


def _zone() -> str:
    return "UTC" if time.timezone == 0 and not time.daylight else "/".join(time.tzname)


def _settings(folder: Path) -> list[Check]:
    """Rules also name variables that only the environment's file sets."""
    return settings.settings(variables(folder, os.environ), _zone(), _missing_modules(folder))


def _missing_modules(folder: Path) -> list[str]:
    """Modules that settings name, but that are neither beside the rules nor on the Python path."""
    callback = os.environ.get("FLOODMARK_ON_FAILURE", "").partition(":")[0]
    named = [*os.environ.get("FLOODMARK_CLASSES", "").split(","), callback]
    listed = [name.strip() for name in named if name.strip()]
    tops = {name: name.partition(".")[0] for name in listed}
    beside = {entry.stem for entry in folder.iterdir()} if folder.is_dir() else set()
    return [name for name, top in tops.items() if top not in beside and find_spec(top) is None]


# --- Rules, home, ledgers


def _rules(folder: Path, good: dict[str, Rule]) -> list[Check]:
    """Checks of the rule files. Adds the valid rules to `good`."""
    if not folder.is_dir():
        return [storage.no_rules_folder(str(folder.absolute()))]
    found, bad = load_rules(folder, os.environ)
    good |= found
    reasons = {str(file): str(fault) for file, fault in bad.items()}
    return storage.rule_files(str(folder.absolute()), len(good), reasons)


def _home(home: Path, qos: int) -> Check:
    """Probe the home or, before the first run, the folder that will hold it. `qos`: the highest of the rules."""
    told = os.environ.get("FLOODMARK_HOME")
    is_told = bool(told) and Path(str(told)).absolute() == home
    named = Path(str(told)).is_absolute() if is_told else home != options.HOME.absolute()
    try:
        check_home(home if home.is_symlink() else _existing(home), qos)  # no home can be created at a broken link
    except FloodmarkError as fault:
        return storage.home(str(home), home.exists(), named, fault)
    return storage.home(str(home), home.exists(), named, None)


def _existing(place: Path) -> Path:
    return next(one for one in (place, *place.parents) if one.exists())


def _room(home: Path, rules: list[Rule]) -> Iterator[Check]:
    """Free space on each file system, once: of the home, of Spark's scratch files, of local sinks."""
    scratch = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]
    wanted = [("the home", home), ("Spark's scratch files", Path(scratch))]
    wanted += [(f"sinks of {rule.rule}", place) for rule in rules for place in _local_sinks(rule)]
    seen: set[int] = set()
    for what, place in ((what, _existing(place)) for what, place in wanted):
        if place.stat().st_dev not in seen:
            seen.add(place.stat().st_dev)
            yield storage.room(what, str(place), shutil.disk_usage(place).free)


def _local_sinks(rule: Rule) -> list[Path]:
    found = [location(sink.address) for sink in rule.sinks if sink.address]
    return [Path(place) for place in found if place.startswith("/")]


def _ledger(home: Path, rule: str) -> str | FloodmarkError | None:
    try:
        ledger = ledger_in(Home(home, rule))
    except FloodmarkError as fault:
        return fault
    return f"epoch {ledger.head.epoch}" if ledger and ledger.head else None


def _unread(root: Path, rule: Rule) -> list[Limit]:
    """Retention of unread input. Other checks report a ledger or source that can't be read."""
    home = Home(root, rule.rule)
    try:
        ledger = LedgerReader.load(home.ledger)
    except FloodmarkError:
        return []
    head = ledger.head if ledger else None
    return list(limits_of(rule, home, head).values()) if head and not head.retired else []


def _holders(home: Path) -> dict[str, Holder | None]:
    """The holder of each lock that is held, or whose last holder left its name (None: no holder now)."""
    found = [*sorted(home.glob("*/lock")), *sorted(home.glob(f"*/{CORRECTING}"))]
    locks = [lock for lock in found if holder_pid(lock) is not None or owner_file(lock).exists()]
    named = {f"{'correction of ' * (lock.name == CORRECTING)}{lock.parent.name}": _holder(lock) for lock in locks}
    relays = [lock for lock in sorted(home.glob(f"*/outbox/*{RELAY}")) if holder_pid(lock) is not None]
    return named | {f"relay to {target_of(lock)} of {lock.parents[1].name}": _holder(lock) for lock in relays}


def _holder(lock: Path) -> Holder | None:
    return None if holder_pid(lock) is None else Holder(holder_text(lock), is_orphan(lock))


# --- Airflow and Spark


def _airflow() -> list[Check]:
    """Ask a separate process: this part of Floodmark doesn't import Airflow, which also takes seconds to start."""
    if find_spec("airflow") is None:
        return []  # the package checks have reported it
    if not _airflow_is_configured():
        return [airflow.NOT_CONFIGURED]
    root = distribution.checkout()
    path = [*([str(root / "plugins")] if root else []), str(distribution.SOURCES), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    command = [sys.executable, "-m", "floodmark_airflow.facts"]
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603
    if found.returncode != 0:
        return airflow.airflow({"error": airflow.last_words(found.returncode, found.stderr)})
    return airflow.airflow(json.loads(found.stdout.splitlines()[-1]))


def _airflow_is_configured() -> bool:
    named = any(name.startswith("AIRFLOW") for name in os.environ)
    return named or Path("~/airflow/airflow.cfg").expanduser().exists()


def spark(home: Path, master: str, seconds: int) -> list[Check]:
    """Start Spark, then write and read a Delta table in the home, within this number of seconds."""
    from floodmark.spark.session.selftest import written_and_read

    place = home / f".doctor-{uuid4().hex}"
    try:
        return [ok("Spark", written_and_read(master, place, seconds))]
    except Exception as fault:  # of Spark, Java or the store: the user needs its message
        said = message(fault).strip().partition("\n")[0]
        return [failed("Spark", f"a Delta table written and read on {master}", said, "see the log above")]
    finally:
        shutil.rmtree(place, ignore_errors=True)
