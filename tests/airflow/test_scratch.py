"""Temporary files of Spark go with the application that made them, also if it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from floodmark_airflow.tasks.scratch import OPTIONS, scratch, sweep

ENDED = 2**22 + 1  # above the highest id that Linux gives a process


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    monkeypatch.delenv(OPTIONS, raising=False)
    return tmp_path


def folder_of(task: int, root: Path, machine: str = "here") -> Path:
    """As a task with that process id leaves it."""
    folder = root / f"floodmark-{machine}-{task}-abc"
    (folder / "blockmgr-1").mkdir(parents=True)
    return folder


@contextmanager
def application(folder: Path) -> Iterator[None]:
    """A process that uses the folder as Spark does."""
    env = {**os.environ, OPTIONS: f"-Djava.io.tmpdir={folder}"}
    script = "import sys; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield
        process.send_signal(signal.SIGKILL)


def test_the_folder_is_javas_and_goes_with_its_content(root: Path) -> None:
    with scratch() as variables:
        (folder,) = root.iterdir()
        assert variables == {OPTIONS: f"-Djava.io.tmpdir={folder}"}
        (folder / "spark-1").mkdir()
    assert list(root.iterdir()) == []


def test_it_goes_when_the_application_fails(root: Path) -> None:
    with pytest.raises(RuntimeError), scratch():
        raise RuntimeError
    assert list(root.iterdir()) == []


def test_options_of_the_operator_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTIONS, "-Xss4m")
    with scratch() as variables:
        assert variables[OPTIONS].startswith("-Xss4m -Djava.io.tmpdir=")


def test_the_next_start_removes_what_a_killed_task_left(root: Path) -> None:
    left = folder_of(ENDED, root)
    with scratch():
        assert not left.exists()


@pytest.mark.parametrize(("task", "machine"), [(os.getpid(), "here"), (ENDED, "elsewhere")], ids=["lives", "elsewhere"])
def test_folders_of_tasks_that_live_or_are_elsewhere_stay(task: int, machine: str, root: Path) -> None:
    kept = folder_of(task, root, machine)
    sweep(root)
    assert kept.exists()


def test_an_application_that_outlives_its_task_keeps_its_files(root: Path) -> None:
    used = folder_of(ENDED, root)
    with application(used):
        sweep(root)
        assert used.exists()
    sweep(root)
    assert not used.exists()
