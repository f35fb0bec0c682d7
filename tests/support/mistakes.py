"""Mistakes that people make, each played in a project of its own; `tests/mistakes` holds them and what is said."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import yaml
from deltalake import write_deltalake
from typer.testing import CliRunner

from floodmark.cli.app import app
from support.byhand import begun, folded, keep
from support.flow import Flow

COLLECTION = Path(__file__).parents[1] / "mistakes"
BASE = COLLECTION / "counted.rule"
START = 978_307_200_000_000  # 2001-01-01T00:00:00Z, in microseconds
# What differs from one machine or minute to the next, and what stands for it.
_PASSING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"), "TIME"),
    (re.compile(r"\b20[2-9]\d-\d\d-\d\dT\d\d:\d\d(:\d\d)?Z?"), "TIME"),
)


@dataclass
class Mistake:
    """`replace`: texts of the rule `counted` that are others; `files`: what else stands where, by path;
    `remove`: what is not there; `run`: the command; `env`: variables; `code`: its exit code; `says`: what it prints.
    """

    mistake: str
    replace: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    run: str = "validate"
    code: int = 2
    says: str = ""

    def __str__(self) -> str:
        return self.mistake


def collected() -> Iterator[tuple[Path, list[Mistake]]]:
    for path in sorted(COLLECTION.glob("*.yaml")):
        yield path, [Mistake(**one) for one in yaml.safe_load(path.read_text(encoding="utf-8"))]


def make_project(root: Path) -> None:
    """A rule that has folded two epochs, its tables, and files as people have them, without Spark."""
    (root / "rules").mkdir(parents=True)
    (root / "rules" / "counted.yaml").write_text(BASE.read_text())
    with _standing_in(root, {}):
        flow = _Project(root)
        ledger = begun(flow)
        for version, minute in ((1, 1), (2, 2)):
            folded(flow, ledger, version, START + minute * 60_000_000, START + minute * 60_000_000 - 30_000_000)
        keep(flow, 2, 100.0)
    write_deltalake(str(root / "lake" / "full"), pa.table({"at": ["x"]}))
    (root / "lake" / "exports").mkdir()
    (root / "lake" / "exports" / "events.csv").write_text("at,k,v,n\n2001-01-01T00:00:00Z,a,1.0,0\n")


class _Project(Flow):
    """The same project as files of its own say it."""

    @property
    def source(self) -> str:
        return str(self.root / "lake" / "events")

    def write_rule(self) -> Path:
        return self.root / "rules" / "counted.yaml"


def play(mistake: Mistake, project: Path, place: Path) -> tuple[int, str]:
    """Exit code and text of the command, in a copy of the project at `place`."""
    shutil.copytree(project, place)
    _err(mistake, place)
    with _standing_in(place, mistake.env):
        result = CliRunner().invoke(app, shlex.split(mistake.run), env={"COLUMNS": "160", "TERM": "dumb"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, _lasting(result.output, place)


def _err(mistake: Mistake, place: Path) -> None:
    rule = place / "rules" / "counted.yaml"
    text = rule.read_text()
    for right, wrong in mistake.replace.items():
        assert right in text, f"{right!r} does not stand in the rule"
        text = text.replace(right, wrong)
    rule.write_text(text)
    for name, content in mistake.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    for name in mistake.remove:
        found = place / name
        shutil.rmtree(found) if found.is_dir() else found.unlink()


@contextmanager
def _standing_in(place: Path, env: dict[str, str]) -> Iterator[None]:
    foreign = [name for name in os.environ if name.startswith(("FLOODMARK_", "AIRFLOW_"))]
    with chdir(place), mock.patch.dict(os.environ, {"LAKE": "lake"}):
        for name in foreign:
            del os.environ[name]
        os.environ.update(env)
        yield


def _lasting(text: str, place: Path) -> str:
    text = text.replace(str(place.resolve()), "/project").replace(str(place), "/project")
    for passing, name in _PASSING:
        text = passing.sub(name, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


class _Readable(yaml.SafeDumper):
    """Texts of several lines as they are."""


def _shown(dumper: yaml.SafeDumper, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _shown)


def renew(path: Path, mistakes: list[Mistake]) -> None:
    """Write the file again, with what the mistakes say now; its head of comments stays."""
    head = "".join(line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line[:1] == "#")
    usual = vars(Mistake(""))
    entries = [{k: v for k, v in vars(one).items() if v != usual[k] or k in ("mistake", "says")} for one in mistakes]
    texts = [yaml.dump([e], Dumper=_Readable, sort_keys=False, allow_unicode=True, width=1000) for e in entries]
    path.write_text(head + "\n".join(texts), encoding="utf-8")
