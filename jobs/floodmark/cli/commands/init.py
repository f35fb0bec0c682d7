"""`floodmark init`: write a first rule file and its test cases, to edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from floodmark.cli.shared import options, output
from floodmark.core.text.files import file_instead_of_folder
from floodmark.errors import Refused

NAME, LAKE = "hello", "lake"
SCHEMA, CASE_SCHEMA = "rule.schema.json", "cases.schema.json"


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder to write to. Default: the current one.", show_default=False)
    ] = Path(),
) -> None:
    """Write a first rule file and its test cases, with comments, and JSON Schemas for editors.

    Example: `floodmark init mine`
    """
    write(directory / options.RULES)
    _print_next_steps(directory)


def write(folder: Path, lake: str = LAKE) -> None:
    """Write the files into this folder of rules, for tables in `lake`. Raises Refused if a file is there already."""
    tests = folder / "tests"
    rule = _template(f"{NAME}.yaml").replace(f":-{LAKE}}}", f":-{lake}}}").replace(f'"{LAKE}/', f'"{lake}/')
    files = {
        folder / f"{NAME}.yaml": rule,
        folder / SCHEMA: _schema(),
        tests / f"{NAME}.yaml": _template(f"{NAME}_cases.yaml"),
        tests / CASE_SCHEMA: _case_schema(),
    }
    file = file_instead_of_folder(tests)
    if file is not None:
        raise Refused(f"expected a folder at {file}, found a file: name another folder")
    there = [str(path) for path in files if path.exists()]
    if there:
        raise Refused(f"not overwritten, because these exist already: {', '.join(there)}. Name another folder")
    tests.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        output.say(f"wrote {path}")


def _template(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _schema() -> str:
    from floodmark.core.rules.rule import schema_text

    return schema_text()


def _case_schema() -> str:
    from floodmark.core.cases.casefile import case_schema_text

    return case_schema_text()


def _print_next_steps(directory: Path) -> None:
    output.say("\nPut your own table, columns and SQL into it, then:")
    if directory != Path():
        output.say(f"  cd {directory}")
    for command, what in (
        ("floodmark validate --connect", "check the file and its tables"),
        (f"floodmark plan {NAME}", "show the state, and what each sink gets"),
        (f"floodmark preview {NAME}", "run the SQL over a sample"),
        (f"floodmark test {NAME}", "run the test cases"),
        (f"floodmark run {NAME}", "process the input"),
        (f"floodmark status {NAME}", "show open windows, and what they wait for"),
    ):
        output.say(f"  {command:<28}  {what}")
