"""A home that cannot keep a rule's tables is refused before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from floodmark.errors import HomeUnfit
from floodmark.ledger import home
from floodmark.ledger.home import check_home


@pytest.mark.parametrize("root", ["/tmp/floodmark-home", "/var/tmp/floodmark-home", "/dev/shm/floodmark-home"])
def test_a_temporary_home_is_refused_above_qos_0(root: str) -> None:
    with pytest.raises(HomeUnfit, match="cannot persist"):
        check_home(Path(root), 1)
    assert not Path(root).exists()


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
    with pytest.raises(HomeUnfit, match="lets two writers create one file"):
        check_home(place, 2)


def test_a_home_that_is_a_file_is_refused(place: Path) -> None:
    (place / "home").write_text("")
    with pytest.raises(HomeUnfit, match="cannot be used"):
        check_home(place / "home", 2)
