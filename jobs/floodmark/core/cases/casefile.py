"""Reads a file of test cases, `rules/tests/NAME.yaml`: input rows and expected rows for each epoch.

The models here also define the JSON Schema for editors. Messages name the place and what was expected there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, WithJsonSchema

from floodmark.core.rules.file.fields import Filled, Written
from floodmark.core.text.ddl import Column, columns_of
from floodmark.core.text.problems import Problems, Source, describe_detail, field_of, read_source, unknown
from floodmark.errors import RuleInvalid

FOLDER = "tests"  # beside the rule files
CASES = "test cases (`cases: [{case: NAME, epochs: [...]}]`)"
Row: TypeAlias = dict[str, Any]


def _moment(value: object) -> datetime:
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass  # reported below
    raise ValueError("expected an ISO 8601 timestamp such as 2001-01-31T12:00")


def _rows(value: object) -> object:
    if not isinstance(value, list):
        raise ValueError("expected a list of rows, such as [{device: a, value: 1}]; [] for none")
    return value


def _columns(value: object) -> tuple[Column, ...]:
    if not isinstance(value, str):
        raise ValueError("expected columns as text such as 'device STRING, at TIMESTAMP'")
    return columns_of(value)


def _some(value: list[Any]) -> list[Any]:
    if not value:
        raise ValueError("expected at least one")
    return value


Moment: TypeAlias = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "description": "ISO 8601; without an offset, in the rule's timezone"}),
]
Rows: TypeAlias = Annotated[list[Row], BeforeValidator(_rows)]
Columns: TypeAlias = Annotated[
    tuple[Column, ...],
    BeforeValidator(_columns),
    WithJsonSchema({"type": "string", "examples": ["device STRING, at TIMESTAMP"]}),
]


class WrittenExpected(Written):
    """All rows of the tables after an epoch. A sink that is left out is not checked. If late or dead rows are left out,
    those of the epoch before are expected."""

    sink: Rows | None = None
    sinks: list[Rows | None] | None = None
    late: Rows | None = None
    dead: Rows | None = None


class WrittenCaseEpoch(Written):
    """Input rows, and the expected tables after them. `lookups`: the lookup tables from this epoch on.

    `now`: the recorded clock; by default it does not change. `close_until`: as in `floodmark run`.
    """

    now: Moment | None = None
    input: dict[str, Rows] = Field(default_factory=dict)
    lookups: dict[str, Rows] = Field(default_factory=dict)
    close_until: Moment | None = None
    expect: WrittenExpected = WrittenExpected()


class WrittenCase(Written):
    case: Filled
    epochs: Annotated[list[WrittenCaseEpoch], AfterValidator(_some), Field(min_length=1)]


class WrittenCases(Written):
    """Test cases of one rule. `schema`: columns of streams and lookup tables that do not exist."""

    columns: dict[str, Columns] = Field(alias="schema", default_factory=dict)
    cases: Annotated[list[WrittenCase], AfterValidator(_some), Field(min_length=1)]


@dataclass(frozen=True)
class CaseFile:
    """The cases of a rule, and the place of everything in the file."""

    source: Source
    written: WrittenCases

    @property
    def path(self) -> Path:
        return self.source.path

    def line(self, case: int) -> int:
        """The line of a case in the file."""
        return self.source.tree.place(("cases", case)).line

    def problems(self) -> Problems:
        """A new, empty collection of problems with the file."""
        return Problems(self.source)


def read_cases(path: Path) -> CaseFile:
    """The cases in the file at `path`. Raises RuleInvalid with one line for each problem."""
    source = read_source(path, CASES)
    return CaseFile(source, _written(source))


def case_files(folder: Path) -> dict[str, Path]:
    """The case files of a folder of rules, by rule name. Raises RuleInvalid if a rule has two."""
    below = folder / FOLDER
    found: dict[str, Path] = {}
    for path in sorted(below.iterdir()) if below.is_dir() else ():
        if path.suffix not in (".yaml", ".yml") or path.name.startswith("."):
            continue
        if path.stem in found:
            raise RuleInvalid(f"{path}: expected one file of cases for a rule, found {found[path.stem].name}, too")
        found[path.stem] = path
    return found


def case_schema_text() -> str:
    """JSON Schema of a case file, for editors."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **WrittenCases.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"


def _written(source: Source) -> WrittenCases:
    problems = Problems(source)
    try:
        return WrittenCases.model_validate(source.tree.value)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            field = field_of(detail["loc"], problems)
            if detail["type"] == "extra_forbidden":
                problems.add(field, unknown("key", str(field[-1]), _known_keys(field[:-1])))
            elif detail["type"] == "missing":
                problems.add(field, f"expected `{field[-1]}: ...`, found nothing")
            else:
                problems.add(field, describe_detail(detail))
    problems.raise_any()
    raise AssertionError("a file that is refused has a problem")


def _known_keys(parent: tuple[int | str, ...]) -> list[str]:
    models: dict[str, type[BaseModel]] = {
        "cases": WrittenCase,
        "epochs": WrittenCaseEpoch,
        "expect": WrittenExpected,
    }
    model = next((models[str(part)] for part in reversed(parent) if part in models), WrittenCases)
    return [field.alias or name for name, field in model.model_fields.items()]
