"""A home that cannot keep a rule's tables is refused before anything is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from floodmark.errors import HomeUnfit, RunFailed
from floodmark.ledger import home
from floodmark.ledger.home import check_home


@pytest.mark.parametrize("root", ["/tmp/floodmark-home", "/var/tmp/floodmark-home", "/dev/shm/floodmark-home"])
def test_a_temporary_home_is_refused_above_qos_0(root: str) -> None:
    with pytest.raises(HomeUnfit, match="cannot persist"):
        check_home(Path(root), 1)
    assert not Path(root).exists()


@pytest.mark.parametrize("name", ["ho%20me", "[ho]me", "ho{me}", "ho*me", "ho?me", "ho|me", "ho^me"])
def test_a_home_that_would_be_read_elsewhere_is_refused_at_any_qos(place: Path, name: str) -> None:
    with pytest.raises(HomeUnfit, match="expected a path without"):
        check_home(place / name, 0)
    assert not (place / name).exists()


def test_a_link_to_a_home_that_would_be_read_elsewhere_is_one(place: Path) -> None:
    (place / "home").symlink_to(place / "ho%20me")
    with pytest.raises(HomeUnfit, match="expected a path without % before two hex digits"):
        check_home(place / "home", 0)


def test_a_link_to_a_temporary_home_is_one(place: Path) -> None:
    (place / "home").symlink_to("/tmp/floodmark-home")
    with pytest.raises(HomeUnfit, match="--home or FLOODMARK_HOME"):
        check_home(place / "home", 2)


def test_a_home_in_memory_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "_file_system", lambda path: "tmpfs")
    with pytest.raises(HomeUnfit, match="its file system is tmpfs"):
        check_home(place, 2)


def test_qos_0_may_forget(tmp_path: Path) -> None:
    check_home(tmp_path / "home", 0)
    assert list((tmp_path / "home").iterdir()) == [], "the probe leaves nothing behind"


def test_a_store_that_lets_two_create_one_file_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", lambda source, name: None)
    with pytest.raises(HomeUnfit, match="lets two writers create the same file"):
        check_home(place, 2)


@pytest.mark.parametrize(
    ("code", "fault", "told"),
    [
        (errno.ESTALE, RunFailed, "cannot be used now: Stale file handle"),
        (errno.EIO, RunFailed, "cannot be used now: Input/output error"),
        (errno.EHOSTDOWN, RunFailed, "cannot be used now: Host is down"),
        (errno.ENOSPC, RunFailed, "the disk is full"),
        (errno.EACCES, HomeUnfit, "cannot be used: Permission denied"),
        (errno.EOPNOTSUPP, HomeUnfit, "cannot be used: Operation not supported"),
    ],
)
def test_what_the_store_of_a_home_says_tells_whether_a_retry_may_help(
    place: Path, monkeypatch: pytest.MonkeyPatch, code: int, fault: type[Exception], told: str
) -> None:
    def fails(source: Path, name: Path) -> None:
        raise OSError(code, os.strerror(code), str(source))

    monkeypatch.setattr(os, "link", fails)
    with pytest.raises(fault, match=told):
        check_home(place, 2)


def test_a_home_that_is_a_file_is_refused(place: Path) -> None:
    (place / "home").write_text("")
    with pytest.raises(HomeUnfit, match="cannot be used"):
        check_home(place / "home", 2)
