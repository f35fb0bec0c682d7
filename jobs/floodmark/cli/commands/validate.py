"""`floodmark validate`: check rule files."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output
from floodmark.errors import FloodmarkError, Refused, RuleInvalid, legible, worst

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule


def validate(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH...]", help="Rule files or folders. Default: the folder of --rules.", show_default=False
        ),
    ] = None,
    connect: Annotated[bool, typer.Option("--connect", help="Also check the tables and their columns.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a rule file and exit.")] = False,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Check rule files: offline, or with --connect against the tables, too. Needs no JVM and writes nothing.

    Example: `floodmark validate`, `floodmark validate rules/departure_delays.yaml --connect`
    """
    if schema:
        return _print_schema()
    found = _with_conflicts([result for path in paths or [rules] for result in _check(path)])
    if connect:
        found = [_connected(result, home.absolute()) for result in found]
    code = worst([result.fault.exit_code for result in found if result.fault])
    if as_json:
        output.print_json({"exit_code": code, "files": [result.facts() for result in found]})
    else:
        _report(found)
    raise typer.Exit(code)


@dataclass(frozen=True)
class Result:
    """One rule file: its rule, or its error. `warnings`: of its sources, where they were asked."""

    file: str
    rule: Rule | None = None
    fault: FloodmarkError | None = None
    warnings: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "rule": self.rule.rule if self.rule else None,
            "ok": self.fault is None,
            "error": {"type": type(self.fault).__name__, "message": str(self.fault)} if self.fault else None,
            "warnings": list(self.warnings),
        }


def _print_schema() -> None:
    from floodmark.core.rules.rule import schema_text

    print(schema_text(), end="")


def _check(path: Path) -> list[Result]:
    if not path.exists():
        none = f"expected a rule file or a folder of them at {path}, found nothing: name one, or write a first one with"
        return [Result(legible(str(path)), None, Refused(f"{none} `floodmark init`"))]
    return _folder(path) if path.is_dir() else [_file(path)]


def _folder(folder: Path) -> list[Result]:
    from floodmark.cli.shared.selection import load_folder, no_rule_file

    found = load_folder(folder)
    good = [_importable(Result(_file_of(folder, name), rule)) for name, rule in found.good.items()]
    bad = [Result(legible(str(folder / file)), None, fault) for file, fault in found.bad.items()]
    if not good and not bad:
        return [Result(legible(str(folder)), None, no_rule_file(folder))]
    return sorted(good + bad, key=lambda result: result.file)


def _file_of(folder: Path, name: str) -> str:
    from floodmark.core.rules.rule import SUFFIXES

    return legible(str(next(path for path in (folder / f"{name}{suffix}" for suffix in SUFFIXES) if path.exists())))


def _file(path: Path) -> Result:
    from floodmark.core.rules.rule import load_rule

    try:
        return _importable(Result(legible(str(path)), load_rule(path, os.environ)))
    except FloodmarkError as fault:
        return Result(legible(str(path)), None, fault)


def _importable(result: Result) -> Result:
    """Add an error if modules that the rule's class imports are missing. Loading rules alone doesn't check this."""
    from floodmark.core.process.declaration import missing_imports
    from floodmark.core.rules.kinds import CODE

    rule = result.rule
    classes = [("process", rule.process.source, rule.process.file)] if rule and rule.process else []
    streams = [(f"streams.{name}", one.kind, one.options) for name, one in rule.streams.items()] if rule else []
    sinks = [(f"sinks[{i}]", one.kind, one.options) for i, one in enumerate(rule.sinks)] if rule else []
    for place, kind, said in (one for one in (*streams, *sinks) if CODE in one[2] and "named" in one[2]):
        file = f"{str(said['named']).partition(':')[0].replace('.', '/')}.py"
        classes.append((f"{place}.{kind}.class", str(said[CODE]), file))
    missing = [f"{key}: {one}" for key, text, file in classes for one in missing_imports(text, file)]
    if not missing:
        return result
    return Result(result.file, result.rule, RuleInvalid("\n".join(f"{result.file}: {one}" for one in missing)))


def _with_conflicts(results: list[Result]) -> list[Result]:
    """Add the conflicts between the files."""
    from floodmark.core.rules.rule import conflicts

    places = [Path(result.file).resolve() for result in results]
    faults = conflicts({place: found.rule for place, found in zip(places, results, strict=True) if found.rule})
    return [
        Result(found.file, None, faults[place]) if place in faults else found
        for place, found in zip(places, results, strict=True)
    ]


def _connected(result: Result, root: Path) -> Result:
    """Add an error of the rule's tables, if they have one, and warnings of its sources."""
    from floodmark.connectors.preflight import cautions, check_next
    from floodmark.connectors.relay.relaying import check_targets
    from floodmark.ledger.home import Home

    if result.rule is None:
        return result
    try:
        check_next(result.rule, root)
        check_targets(result.rule, Home(root, result.rule.rule))
        return replace(result, warnings=cautions(result.rule, root))
    except FloodmarkError as fault:
        return Result(result.file, result.rule, fault)


def _report(found: list[Result]) -> None:
    for result in found:
        if result.fault is None:
            output.say("\n  warning: ".join((f"OK  {result.file}", *result.warnings)))
    for result in found:
        if result.fault is not None:
            output.print_error(_with_file(result))


def _with_file(result: Result) -> str:
    said = str(result.fault)
    return said if Path(result.file).name in said else f"{result.file}: {said}"
