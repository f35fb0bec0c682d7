"""The tutorial, word for word: its files are written, its commands run in one shell, and their output compared."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from support.snippets import CHECKOUT, Snippet, of_page
from support.waiting import wait

PAGE = CHECKOUT / "docs" / "tutorial.md"
MINUTES = 10
Answer = TypeVar("Answer")
END = "__end_of_a_block__"


class Shell:
    """One bash for all blocks, in a folder; it ends at the first command that fails."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "-e"], cwd=folder, env=env, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def begin(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\necho {END}\n")
        self.process.stdin.flush()

    def lines(self) -> Iterator[str]:
        """What it prints, to the end of the block."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == END:
                return
            yield line.rstrip()
        raise AssertionError("a command of the tutorial failed")

    def run(self, text: str) -> str:
        self.begin(text)
        said: list[str] = []
        try:
            said.extend(self.lines())
        except AssertionError as fault:
            raise AssertionError("\n".join([f"{fault}:", text, "it printed:", *said])) from fault
        return "\n".join(said)

    def end(self) -> None:
        """As Ctrl-C, for the whole group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)


@pytest.mark.prove
@pytest.mark.timeout(60 * MINUTES + 60)
def test_the_tutorial_works_word_for_word_in_ten_minutes(place: Path) -> None:
    begun = time.monotonic()
    shell = Shell(place, _environment(place))
    try:
        said = ""
        for one in of_page(PAGE):
            if one.kind in ("yaml", "python"):
                (Path(shell.run("pwd")) / _name(one)).write_text(one.text)
            elif one.kind == "text":
                assert _pattern(one.text).fullmatch(said), f"{one}: expected\n{one.text}\nfound\n{said}"
            elif "make -C .. up" in one.text:
                said = _look_at_the_ui(shell, one.text)
            else:
                said = shell.run(one.text)
    finally:
        shell.end()
    assert time.monotonic() - begun < 60 * MINUTES


def _environment(place: Path) -> dict[str, str]:
    """A user's: with a copy of this checkout to clone, its jars as those of a cache, and no settings of ours."""
    ours = ("FLOODMARK", "AIRFLOW", "PYSPARK", "PYTHONPATH", "VIRTUAL_ENV", "MAKE", "LAKE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    env["PATH"] = ":".join(part for part in env["PATH"].split(":") if ".venv" not in part)
    return {**env, "FLOODMARK": str(_copied(place)), "TERM": "dumb", "GIT_TERMINAL_PROMPT": "0"}


def _copied(place: Path) -> Path:
    """The checkout as a repository of one commit, with what is not committed yet; and the jars, as cached."""
    origin = place / "origin"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (CHECKOUT / name).is_file() and not (CHECKOUT / name).is_symlink():
            (origin / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, origin / name)
    shutil.copytree(CHECKOUT / ".cache" / "jars", origin / ".cache" / "jars")
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["add", "-f", ".cache/jars"], [*author, "commit", "-qm", "as it is"]):
        subprocess.run(["git", *words], cwd=origin, check=True)
    return origin


def _name(one: Snippet) -> str:
    """The file that a block is, from the line above it: `rules/x.yaml`:"""
    above = PAGE.read_text(encoding="utf-8").splitlines()[: one.line - 2]
    named = next(line for line in reversed(above) if line.strip())
    found = re.fullmatch(r"`([\w/.]+)`:", named)
    assert found, f"{one}: which file is it?"
    return found[1]


def _pattern(text: str) -> re.Pattern[str]:
    """The output as the page shows it; … stands for anything."""
    return re.compile(re.escape(text.strip()).replace("…", ".*"), re.S)


def _look_at_the_ui(shell: Shell, text: str) -> str:
    """What it prints, to where it stays; then the rule's DAG and pages are asked for, as its UI does."""
    shell.begin(text)
    said = []
    for line in shell.lines():
        said.append(line)
        if "Ctrl-C stops everything" in line:
            break
    told = dict(re.findall(r"^  (Airflow|login) +(.+)$", "\n".join(said), re.M))
    user, _, password = told["login"].partition(" / ")
    token = _asked(told["Airflow"], "/auth/token", {"username": user, "password": password})["access_token"]
    _once_there(lambda: _asked(told["Airflow"], "/api/v2/dags/rule.slow_pages", None, token))
    page = _once_there(lambda: _text(told["Airflow"], "/floodmark/dags/rule.slow_pages", token))
    assert "slow_pages" in page
    return "\n".join(said)


def _once_there(ask: Callable[[], Answer]) -> Answer:
    """Its answer, once there is one: DAGs are read every now and then."""

    def answer() -> Answer | None:
        try:
            return ask()
        except URLError:
            return None

    found = wait(answer, every=1, limit=120)
    assert found
    return found


def _asked(address: str, path: str, body: dict[str, str] | None, token: str | None = None) -> dict[str, str]:
    return json.loads(_text(address, path, token, body))


def _text(address: str, path: str, token: str | None, body: dict[str, str] | None = None) -> str:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = json.dumps(body).encode() if body is not None else None
    request = Request(address.rstrip("/") + path, data=data, headers=headers)  # noqa: S310 - http of this machine
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        return answer.read().decode()
