"""The list of planted faults: each stands where it says, and some test is known that would notice it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def faults() -> Any:
    """The script, as a module."""
    found = importlib.util.spec_from_file_location("planting_faults", ROOT / "scripts/faults.py")
    assert found is not None and found.loader is not None
    made = importlib.util.module_from_spec(found)
    sys.modules["planting_faults"] = made
    found.loader.exec_module(made)
    return made


def test_there_are_at_least_eighty_each_found_once_and_each_with_its_own_name(faults: Any) -> None:
    found = faults.planted()  # raises, with the names of all, where a text is not found once
    assert len(found) >= 80
    assert len({fault.name for fault in found}) == len(found)
    assert all(fault.lost and fault.what != fault.by for fault in found)
    parts = {fault.file.split("/")[0] for fault in found}
    assert {"core", "ledger", "connectors", "spark", "audit"} <= parts


def test_each_fault_has_tests_to_ask(faults: Any) -> None:
    reached = json.loads(faults.REACHED.read_text())
    alone = [fault.name for fault in faults.planted() if not list(faults.asked(fault, reached))]
    assert not alone, "record what reaches them (docs/reference/faults.md)"
    for path in {test.partition("::")[0] for fault in faults.planted() for test in fault.tests}:
        assert (ROOT / path).exists(), path


def test_the_tests_that_noticed_a_fault_are_there_and_no_fault_is_unknown(faults: Any) -> None:
    names = {fault.name for fault in faults.planted()}
    reached = json.loads(faults.REACHED.read_text())
    assert set(reached["tests"]) <= names and set(reached["noticed"]) <= names
    for test in reached["noticed"].values():
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test


def test_the_page_has_the_list(faults: Any) -> None:
    listed = faults._listed(faults.planted(), json.loads(faults.REACHED.read_text()))
    assert faults.PAGE.read_text().endswith(f"{faults.LIST}\n\n{listed}\n"), "call scripts/faults.py page"


def test_a_fault_that_is_not_found_once_is_refused(
    faults: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fault = {"name": "gone", "file": "core/sql/windows.py", "what": "no such text", "by": "", "lost": "nothing"}
    planted = tmp_path / "planted.toml"
    planted.write_text("[[fault]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fault.items()))
    monkeypatch.setattr(faults, "FAULTS", planted)
    with pytest.raises(ValueError, match=r"gone: expected 'no such text' once in .*, found 0"):
        faults.planted()


def test_the_lines_of_a_fault_are_those_of_its_statement(faults: Any) -> None:
    [one] = [fault for fault in faults.planted() if fault.name == "state-files-a-millisecond-early"]
    text = (ROOT / one.path).read_text().splitlines()
    assert [text[line - 1].strip() for line in sorted(one.lines)] == ["return at + CUT + _off(at)"]


def test_each_commit_gets_others(faults: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def head(text: str) -> None:
        told = subprocess.CompletedProcess([], 0, stdout=text, stderr="")
        monkeypatch.setattr(faults.subprocess, "run", lambda *_, **__: told)

    found = []
    for commit in ("00000000", "00000001", ""):
        head(commit)
        found.append([fault.name for fault in faults.some(faults.planted(), 6)])
    assert len(set(found[0])) == 6 and found[0] != found[1] and found[2] == found[0]
