"""`floodmark doctor`: check this installation, and say how to fix it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.shared import options, output

if TYPE_CHECKING:
    from floodmark.core.health.checks import Check


def doctor(
    spark: Annotated[
        bool, typer.Option("--spark", help="Also start Spark, write a Delta table into the home, and read it.")
    ] = False,
    timeout: Annotated[
        int, typer.Option("--timeout", min=1, help="Maximum seconds for that table, after Spark has started.")
    ] = 120,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    master: options.Master = options.MASTER,
    as_json: options.AsJson = False,
) -> None:
    """Check versions, jars, rules, home, ledgers, locks, settings and Airflow, and say what to fix. No JVM.

    It checks its own environment. To check Airflow, run it with the environment of Airflow's scheduler. It writes
    only a probe into the home.

    Exit codes: 0 nothing failed (there may be warnings), 2 something failed.

    Example: `floodmark doctor`, `floodmark doctor --spark --master spark://host:7077`
    """
    from floodmark.cli.shared import doctorchecks
    from floodmark.core.health.checks import exit_code

    found = doctorchecks.all_checks(rules, home.absolute())
    if spark:
        found += doctorchecks.spark(home.absolute(), master, timeout)
    if as_json:
        output.print_json({"exit_code": exit_code(found), "checks": [asdict(check) for check in found]})
    else:
        _report(found)
    raise typer.Exit(exit_code(found))


def _report(checks: list[Check]) -> None:
    from floodmark.core.health.checks import VERDICTS

    width = max(len(check.name) for check in checks)
    for check in checks:
        output.say(f"{check.verdict:<8} {check.name:<{width}}  {_indented(check.found)}")
        if check.verdict != "ok":
            output.say(f"           expected: {_indented(check.expected)}")
            output.say(f"           to do:    {_indented(check.fix)}")
    counts = (f"{sum(check.verdict == verdict for check in checks)} {verdict}" for verdict in VERDICTS)
    output.say(f"\n{', '.join(counts)}")


def _indented(text: str) -> str:
    return text.replace("\n", "\n           ")
