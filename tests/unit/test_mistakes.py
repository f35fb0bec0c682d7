"""What people are told of their mistakes. `make messages` writes the collection anew; then read what has changed."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest
from support.mistakes import Mistake, collected, make_project, play, renew

MISTAKES = [one for _, mistakes in collected() for one in mistakes]


@pytest.fixture(scope="module")
def project(root: Path) -> Path:
    found = root / "project"
    make_project(found)
    return found


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_told_as_it_was_agreed(mistake: Mistake, project: Path, root: Path) -> None:
    if os.environ.get("FLOODMARK_RENEW") == "1":
        mistake.code, mistake.says = play(mistake, project, root / uuid4().hex)
    else:
        assert play(mistake, project, root / uuid4().hex) == (mistake.code, mistake.says)


def test_there_are_at_least_sixty_each_with_another_message() -> None:
    assert len({one.mistake for one in MISTAKES}) == len(MISTAKES) >= 60


@pytest.fixture(scope="module", autouse=True)
def renewed() -> object:
    yield
    if os.environ.get("FLOODMARK_RENEW") == "1":
        by_name = {one.mistake: one for one in MISTAKES}
        for path, mistakes in collected():
            renew(path, [by_name[one.mistake] for one in mistakes])
