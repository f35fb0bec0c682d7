"""Checks the settings in the environment, and reports likely mistakes."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from floodmark.core.application.connections import PREFIXES
from floodmark.core.health.checks import Check, ok, warning
from floodmark.core.rules.installation import VARIABLES

KNOWN = (
    """FLOODMARK_RULES FLOODMARK_HOME FLOODMARK_ENV FLOODMARK_MASTER FLOODMARK_JARS FLOODMARK_FAST_START
FLOODMARK_SYNC FLOODMARK_DEBUG FLOODMARK_CLASSES FLOODMARK_VARIABLES FLOODMARK_CRASH_AT FLOODMARK_CRASH_MARKS
FLOODMARK_ON_FAILURE""".split()
    + list(VARIABLES)
)
# Read by the demo and by tests (FLOODMARK_EVERY and _FROM choose damages to play); they do not affect rules.
OTHERS = "FLOODMARK_PROVE FLOODMARK_SEED FLOODMARK_TAG FLOODMARK_EVERY FLOODMARK_FROM".split()


def settings(env: Mapping[str, str], zone: str, missing_modules: Collection[str]) -> list[Check]:
    """`zone`: the machine's; `missing_modules`: modules that the settings name and that do not exist."""
    found = [
        _zone(zone),
        _sync(env.get("FLOODMARK_SYNC")),
        _classes(env.get("FLOODMARK_CLASSES"), missing_modules),
        _variables(env),
        _on_failure(env.get("FLOODMARK_ON_FAILURE"), missing_modules),
        *_slips(env),
    ]
    if env.get("FLOODMARK_FAST_START") == "0":
        found.append(warning("FLOODMARK_FAST_START", "not set", "0: quick starts are off", "unset it"))
    if env.get("FLOODMARK_CRASH_AT"):
        said = f"{env['FLOODMARK_CRASH_AT']}: a run that reaches it waits to be killed"
        found.append(warning("FLOODMARK_CRASH_AT", "not set outside of tests", said, "unset it"))
    return found


def _zone(zone: str) -> Check:
    if zone in ("UTC", "GMT", "Etc/UTC"):
        return ok("time zone", f"{zone}; a rule's own is its `timezone`")
    expected = "UTC, so that times that Python shows without a zone match the ledger and the logs"
    return warning("time zone", expected, zone, "set TZ=UTC for all of Floodmark's and Airflow's processes")


def _sync(value: str | None) -> Check:
    if value == "1":
        return ok("FLOODMARK_SYNC", "1: writes to a local disk are synced")
    if value in (None, "", "0"):
        return ok("FLOODMARK_SYNC", "off: a power loss may lose the writes of the last half minute")
    return warning("FLOODMARK_SYNC", "1, or not set", f"{value!r}, which is treated as off", "set FLOODMARK_SYNC=1")


def _listed(value: str) -> list[str]:
    return [one.strip() for one in value.split(",") if one.strip()]


def _classes(value: str | None, missing: Collection[str]) -> Check:
    name = "FLOODMARK_CLASSES"
    if value is None:
        return ok(name, "not set: rules may name any class on the Python path")
    lost = sorted(set(_listed(value)) & set(missing))
    if lost:
        fix = "fix the name, or put the module on PYTHONPATH"
        return warning(name, "modules that exist", f"{', '.join(lost)}: not found", fix)
    return ok(name, f"classes of {', '.join(_listed(value)) or 'no module'} only")


def _on_failure(value: str | None, missing: Collection[str]) -> Check:
    name = "FLOODMARK_ON_FAILURE"
    if not value:
        return ok(name, "not set: failures appear only in Airflow's UI and logs")
    module, mark, function = value.partition(":")
    if not mark or not function or module in missing:
        fix = "write module:function, and put the module on PYTHONPATH of Airflow's processes"
        return warning(name, "an existing function, as module:function", value, fix)
    return ok(name, f"{value} is called when a run has failed and has no retries left")


def _variables(env: Mapping[str, str]) -> Check:
    name = "FLOODMARK_VARIABLES"
    if name not in env:
        return ok(name, "not set: rules may name every variable that does not look like a secret")
    unset = [one for one in _listed(env[name]) if one not in env]
    if unset:
        return warning(
            name, "variables that are set", f"{', '.join(unset)}: not set", "set them, or remove them from the list"
        )
    return ok(name, f"rules may name {', '.join(_listed(env[name])) or 'none'} only")


def _slips(env: Mapping[str, str]) -> list[Check]:
    """Warnings about variables that nothing reads."""
    ours = (name for name in env if name.startswith("FLOODMARK_") and not name.startswith(PREFIXES))
    unknown = sorted(name for name in ours if name not in {*KNOWN, *OTHERS})
    return [
        warning(name, _nearest(name), "a setting that nothing reads", "fix the name, or unset it") for name in unknown
    ]


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, KNOWN, n=1)
    return f"perhaps {near[0]}" if near else f"one of {', '.join(KNOWN)}"
