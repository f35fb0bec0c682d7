"""What the shells offer on Tab: commands, options, names of rules and environments."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from floodmark.cli import main

CHECKOUT = Path(__file__).parents[2]
SHELLS = ("bash", "zsh", "fish")
BASH = """
eval "$(_FLOODMARK_COMPLETE=source_bash floodmark)"
function=$(complete -p floodmark | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=(floodmark run cou) COMP_CWORD=2
$function floodmark cou run
echo "${COMPREPLY[@]}"
"""
Offered = Callable[[str, str], str]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (
        "rules/counted.yaml",
        "rules/cleaned.yaml",
        "rules/_defaults.yaml",
        "env/prod.env",
        "home/old/ledger/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def offered(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offered:
    def answer(shell: str, line: str) -> str:
        monkeypatch.chdir(project)
        monkeypatch.setenv("_FLOODMARK_COMPLETE", f"complete_{shell}" if line else f"source_{shell}")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        with pytest.raises(SystemExit):
            main([])
        return capsys.readouterr().out

    return answer


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_is_offered_commands_options_and_names(shell: str, offered: Offered) -> None:
    assert "status" in offered(shell, "floodmark sta")
    assert "--close-until" in offered(shell, "floodmark run --clo")
    said = offered(shell, "floodmark run c")
    assert "counted" in said and "cleaned" in said
    assert "_defaults" not in offered(shell, "floodmark plan ")
    assert "old" in offered(shell, "floodmark drop o"), "a home without a rule file"
    assert "prod" in offered(shell, "floodmark run counted --env p")
    assert "counted" in offered(shell, "floodmark dead list c")


@pytest.mark.parametrize("shell", SHELLS)
def test_names_are_those_of_the_folder_that_the_line_says(shell: str, project: Path, offered: Offered) -> None:
    (project / "others").mkdir()
    (project / "others" / "another.yml").touch()
    assert "another" in offered(shell, "floodmark plan --rules others a")
    assert "counted" not in offered(shell, "floodmark plan --rules others c")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_its_script(shell: str, offered: Offered) -> None:
    assert f"_FLOODMARK_COMPLETE=complete_{shell}" in offered(shell, "")


def test_a_real_bash_completes_by_the_script(project: Path) -> None:
    command = project / "bin" / "floodmark"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c 'from floodmark.cli import main; main()' \"$@\"\n")
    command.chmod(0o755)
    paths = {**os.environ, "PYTHONPATH": str(CHECKOUT / "jobs"), "PATH": f"{command.parent}:{os.environ['PATH']}"}
    found = subprocess.run(["bash", "-c", BASH], cwd=project, env=paths, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "counted"
