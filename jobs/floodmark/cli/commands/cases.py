"""`floodmark test`: run the user's test cases of rules."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output
from floodmark.errors import FloodmarkError, Refused, exit_code, message, worst

if TYPE_CHECKING:
    from floodmark.cli.shared.selection import Rules
    from floodmark.testing import Case
    from floodmark.testing.inputs import Inputs
    from floodmark.testing.playing import Result


def cases(
    names: options.RuleNames = None,
    only: Annotated[
        str | None, typer.Option("--case", help="Only cases whose name contains this text.", metavar="TEXT")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the tables of the cases.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a case file and exit.")] = False,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    master: options.Master = options.MASTER,
    as_json: options.AsJson = False,
) -> None:
    """Run the test cases in `RULES/tests/NAME.yaml` with the real engine, on scratch tables.

    A case lists input rows by epoch, and the sink, late and dead rows expected after each. All cases share one Spark
    application. The rules' own streams, sinks and home are not written.

    Exit codes: 0 all passed, 1 some failed, 2 a file can't be used.

    Example: `floodmark test`, `floodmark test departure_delays --case late`
    """
    if schema:
        return _print_schema()
    from floodmark.cli.shared.selection import load_folder

    found, inputs, faults = _cases(load_folder(rules), names)
    found = [case for case in found if only is None or only.lower() in case.written.case.lower()]
    if not found and not faults:
        raise Refused(f"expected test cases in {rules / 'tests'}{f' with {only!r} in their names' if only else ''}, "
                      "found none; docs/reference/test.md explains how to write them")  # fmt: skip
    results = list(_played(found, inputs, home.absolute(), master, keep, as_json))
    code = worst([_code(result) for result in results] + [exit_code(fault) for fault in faults.values()])
    if as_json:
        output.print_json({"exit_code": code, "cases": [*map(_facts, results)], "errors": _errors(faults)})
    else:
        _report(results, faults)
    raise typer.Exit(code)


def _print_schema() -> None:
    from floodmark.core.cases.casefile import case_schema_text

    print(case_schema_text(), end="")


def _cases(rules: Rules, names: list[str] | None) -> tuple[list[Case], dict[str, Inputs], dict[str, FloodmarkError]]:
    """The cases of the named rules, or of all rules that have cases; their input, and why others have none, by name."""
    from floodmark.core.cases.casefile import case_files
    from floodmark.testing.cases import cases_of, no_cases
    from floodmark.testing.inputs import Inputs

    files = case_files(rules.folder)
    found: list[Case] = []
    inputs: dict[str, Inputs] = {}
    faults: dict[str, FloodmarkError] = {}
    for name in dict.fromkeys(names) if names else files:
        try:
            if name not in rules.good:
                raise rules.fault(name)
            if name not in files:
                raise no_cases(name, rules.folder)
            mine = cases_of(rules.good[name], files[name])
            inputs[name] = Inputs(mine[0].rule, mine[0].file)  # reports bad inputs before Spark starts
            found += mine
        except FloodmarkError as fault:
            faults[name] = fault
    return found, inputs, faults


def _played(
    found: list[Case], inputs: dict[str, Inputs], home: Path, master: str, keep: bool, quiet: bool
) -> Iterator[Result]:
    """Play all cases in one application; report each when it ends."""
    if not found:
        return
    from floodmark.proving.scratch import scratch_folder
    from floodmark.spark.session.session import root_session
    from floodmark.testing.cases import SCRATCH
    from floodmark.testing.playing import play

    rules = {case.rule.rule: case.rule for case in found}
    with scratch_folder(home / SCRATCH, "cases", max(rule.qos for rule in rules.values()), keep) as folder:
        if keep:
            output.say(f"scratch folder: {folder}", err=quiet)
        session = root_session(master, list(rules.values()), backlog=0)
        try:
            for number, case in enumerate(found):
                result = play(session, case, folder / f"{number}", inputs[case.rule.rule])
                _report_case(result, quiet)
                yield result
                if not keep:
                    shutil.rmtree(folder / f"{number}")
        finally:
            session.stop()


def _report_case(result: Result, quiet: bool) -> None:
    epochs = len(result.case.written.epochs)
    said = "ok    " if result.passed else "FAILED"
    output.say(f"{said} {result.case} ({epochs} epoch{'s' if epochs > 1 else ''}, {result.seconds:.1f} s)", err=quiet)


def _code(result: Result) -> int:
    """Exit code of one case: 2 if the case is refused, 1 for any other failure."""
    if result.passed:
        return 0
    return Refused.exit_code if isinstance(result.fault, Refused) else 1


def _report(results: list[Result], faults: dict[str, FloodmarkError]) -> None:
    failed = [result for result in results if not result.passed]
    for result in failed:
        output.say(f"\n{result.case}\n{result.case.place}: {result.text()}")
    for fault in faults.values():
        output.print_error(message(fault))
    output.say(f"\n{len(results)} cases: {len(results) - len(failed)} passed, {len(failed)} failed")


def _facts(result: Result) -> dict[str, Any]:
    return {
        "rule": result.case.rule.rule,
        "case": result.case.written.case,
        "file": str(result.case.file.path),
        "line": result.case.file.line(result.case.number),
        "passed": result.passed,
        "epoch": result.epoch,
        "watermark": result.watermark,
        "differences": [_difference(one) for one in result.differences],
        "error": _error(result.fault),
        "seconds": round(result.seconds, 3),
    }


def _difference(found: Any) -> dict[str, Any]:
    return {
        "table": found.table,
        "columns": list(found.columns),
        "expected_rows": found.expected_rows,
        "found_rows": found.found_rows,
        "rows": [{"expected": row.expected, "found": row.found} for row in found.rows],
    }


def _error(fault: Exception | None) -> dict[str, str] | None:
    return None if fault is None else {"type": type(fault).__name__, "message": message(fault)}


def _errors(faults: dict[str, FloodmarkError]) -> list[dict[str, Any]]:
    return [{"rule": name, "error": _error(fault)} for name, fault in faults.items()]
