"""What a source lets go of when its rule is dropped, and what not: without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from floodmark.connectors.delta.landed import Landed
from floodmark.connectors.ports import releasing
from floodmark.connectors.ports.source import Source
from floodmark.connectors.sources.postgres.holding import Holder
from floodmark.connectors.sources.postgres.server import kept, slots
from floodmark.core.rules.rule import Stream
from floodmark.errors import FloodmarkError, NotOwned, Refused, RunFailed, TableBroken

ABOUT = "stream e"


class Server:
    """A database with one slot, and the names of what was dropped."""

    about = "shop"

    def __init__(self, confirmed: int):
        self.confirmed, self.dropped = confirmed, list[str]()

    @contextmanager
    def connected(self) -> Iterator[None]:
        yield None


@pytest.fixture
def keep(place: Path) -> Path:
    folder = place / "r" / "sources" / "e"
    folder.mkdir(parents=True)
    kept.save(folder, kept.Kept("s", "p", True, True))
    return folder


def release(keep: Path, monkeypatch: pytest.MonkeyPatch, confirmed: int, landed: int | None) -> list[str]:
    server = Server(confirmed)
    monkeypatch.setattr(slots, "state", lambda *_: slots.State("pgoutput", "shop", confirmed, None, None, 0))
    monkeypatch.setattr(slots, "drop", lambda _, slot: server.dropped.append(slot))
    monkeypatch.setattr(slots, "unpublish", lambda _, name: server.dropped.append(name))
    try:
        Holder(ABOUT, cast("Any", None), keep).release(cast("Any", server), landed)
    except Refused:
        assert server.dropped == [] and kept.load(keep) is not None
        raise
    return server.dropped


@pytest.mark.parametrize(("confirmed", "landed"), [(7, 7), (6, 7), (7, None), (7, 0)])
def test_a_slot_goes_with_its_home(keep: Path, monkeypatch: pytest.MonkeyPatch, confirmed: int, landed: int) -> None:
    assert release(keep, monkeypatch, confirmed, landed) == ["s", "p"]
    assert kept.load(keep) is None


def test_a_slot_that_another_copy_of_the_home_has_advanced_stays(keep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = "slot s at LSN 0/7 or before, which this home has landed, found 0/8: the home is an older copy"
    with pytest.raises(NotOwned, match=problem):
        release(keep, monkeypatch, 8, 7)
    with pytest.raises(NotOwned, match=problem):
        Holder(ABOUT, cast("Any", None), keep).check_release(cast("Any", Server(8)), 7)


def test_a_slot_of_the_users_own_is_asked_nothing(keep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may have advanced it, and nothing of it would go."""
    kept.save(keep, kept.Kept("s", "p", False, False))
    Holder(ABOUT, cast("Any", None), keep).check_release(cast("Any", None), 7)
    assert release(keep, monkeypatch, 8, 7) == [] and kept.load(keep) is None


class Kept(Source):
    """A source that lets go of nothing, for this reason."""

    def __init__(self, why: FloodmarkError):
        self.why, self.asked = why, list[str | None]()

    def remains(self) -> str | None:
        return "slot s"

    def release(self, read: str | None = None) -> None:
        self.asked.append(read)
        raise self.why


@pytest.mark.parametrize(
    ("why", "error", "way"),
    [(Refused("no"), Refused, "Leave it there with"), (RunFailed("busy"), RunFailed, "Retry; or leave it there with")],
)
def test_what_is_kept_is_told_with_the_way_on(
    why: FloodmarkError, error: type[FloodmarkError], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releasing, "sources", lambda *_: {"e": Kept(why)})
    with pytest.raises(error, match=f"{why}. Not removed: slot s. {way} --leave-others"):
        releasing.release(cast("Any", None), cast("Any", None), leave=False)
    assert releasing.release(cast("Any", None), cast("Any", None), leave=True) == {"e": f"{why}. Not removed: slot s"}


class Quiet(Source):
    """A source that can let go of its slot, unless `checked` says why not."""

    def __init__(self, checked: FloodmarkError | None = None):
        self.checked, self.released = checked, False

    def remains(self) -> str | None:
        return None if self.released else "slot q"

    def check_release(self, read: str | None = None) -> None:
        if self.checked is not None:
            raise self.checked

    def release(self, read: str | None = None) -> None:
        self.released = True


def test_no_slot_goes_before_each_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of one stream tell that the home is an older copy; no row came to the other one since."""
    quiet, ahead = Quiet(), Quiet(NotOwned("advanced"))
    monkeypatch.setattr(releasing, "sources", lambda *_: {"q": quiet, "a": ahead})
    with pytest.raises(Refused, match=r"advanced\. Not removed: slot q\. Leave it there with --leave-others"):
        releasing.release(cast("Any", None), cast("Any", None), leave=False)
    assert not quiet.released
    left = releasing.release(cast("Any", None), cast("Any", None), leave=True)
    assert not quiet.released and not ahead.released
    assert left == {"a": "advanced. Not removed: slot q", "q": f"{releasing.OLDER}. Not removed: slot q"}


def test_a_sink_that_tells_of_an_older_copy_keeps_every_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Quiet()
    monkeypatch.setattr(releasing, "sources", lambda *_: {"q": quiet})
    left = releasing.release(cast("Any", None), cast("Any", None), leave=True, is_older=True)
    assert list(left) == ["q"] and not quiet.released


def test_a_server_that_does_not_answer_keeps_no_slot_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Quiet()
    monkeypatch.setattr(releasing, "sources", lambda *_: {"d": Quiet(RunFailed("down")), "q": quiet})
    assert list(releasing.release(cast("Any", None), cast("Any", None), leave=True)) == ["d"] and quiet.released


def test_a_source_is_told_up_to_where_its_landing_reaches(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Kept(Refused("no"))
    found = Landed("e", Stream(kind="delta", address=str(place)), inner, str(place / "landing"))
    monkeypatch.setattr(Landed, "landing", lambda _: object())
    for newest in (lambda _: cast("Any", type("C", (), {"end": "x"})), _broken):
        monkeypatch.setattr(Landed, "newest", newest)
        with pytest.raises(Refused):
            found.release()
    assert found.remains() == "slot s" and inner.asked == ["x", None]


def _broken(_: object) -> Any:
    raise TableBroken("its log is damaged")
