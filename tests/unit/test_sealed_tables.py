"""Which tables a reset seals: those of its ledger, and not what lies by now where one of its sinks was."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from pyspark.errors import PySparkException
from support.flow import Flow
from support.lives import SCHEMA, lived

from floodmark.connectors.backlog.news import look
from floodmark.connectors.ports.sink import Status
from floodmark.connectors.preflight import check_without_jvm
from floodmark.core.protocol.records.rows import Seal
from floodmark.errors import FloodmarkError, RunFailed
from floodmark.ledger.delta import tables
from floodmark.ledger.delta.damage import HELD
from floodmark.ledger.ledger import Ledger
from floodmark.spark.write import sealing
from floodmark.spark.write.sealing import is_own, seal, sites_to_seal
from floodmark.spark.write.sites import Site


@pytest.mark.parametrize(
    ("found", "known", "own"),
    [
        (Status("a", None, owner="me"), "a", True),
        (Status("a", None, owner=""), "a", True),
        (Status("b", None, owner="me"), "a", True),
        (Status("b", None, owner="other"), "a", False),
        (Status("b", None, owner=""), "a", False),
        (Status("b", None, owner="me"), None, True),
        (Status("b", None, owner=""), None, False),
        (Status("b", None), "a", False),
        (Status("a", None), "a", True),
        (Status("b", None), None, True),
    ],
)
def test_a_table_is_known_by_its_id_or_its_owner(found: Status, known: str | None, own: bool) -> None:
    assert is_own(found, known, "me") is own


def sealed(flow: Flow, ledger: Ledger, *remain: str) -> list[str]:
    return sorted(site.name for site in sites_to_seal(ledger.begun, flow.place, ledger.id, remain))


@pytest.mark.parametrize("owner", ["another ledger", None])
def test_the_table_of_somebody_else_at_the_address_of_a_sink_stays_as_it_is(place: Path, owner: str | None) -> None:
    flow = Flow(place)
    ledger = lived(flow)
    every = sorted(ledger.begun.table_ids)
    assert sealed(flow, ledger, *every) == every
    rmtree(flow.sink(1))
    assert sealed(flow, ledger) == [name for name in every if name != f"sink/{flow.sink(1)}"]
    tables.create(flow.sink(1), SCHEMA, {tables.OWNER: owner} if owner else {})
    assert sealed(flow, ledger) == [name for name in every if name != f"sink/{flow.sink(1)}"]


def _out_of_reach(lost: str, site: Site, *_: object) -> bool:
    if site.name == lost:
        raise PermissionError(13, "Permission denied")
    return True


@pytest.mark.parametrize("damaged", [True, False])
def test_a_sink_that_the_file_no_longer_has_may_be_out_of_reach(
    place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    flow = Flow(place)
    ledger = lived(flow)
    every, lost = sorted(ledger.begun.table_ids), f"sink/{flow.sink(1)}"
    if damaged:
        for entry in Path(flow.sink(1), "_delta_log").glob("*.json"):
            entry.write_text("{")
    else:
        monkeypatch.setattr(sealing, "can_be_sealed", partial(_out_of_reach, lost))
    with pytest.raises(FloodmarkError if damaged else OSError):
        sealed(flow, ledger, *every)
    with caplog.at_level(logging.WARNING):
        assert sealed(flow, ledger, *(name for name in every if name != lost)) == [n for n in every if n != lost]
    assert f"{lost}: the rule's file no longer has this sink, and it cannot be read or written now" in caplog.text


class _ReadOnly:
    """In place of Spark's session, over a store that refuses each write."""

    def __getattr__(self, name: str) -> Any:
        raise PySparkException("Access Denied")


def test_a_sink_that_the_file_no_longer_has_may_refuse_the_seal(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    flow = Flow(place)
    ledger = lived(flow)
    every, kept = ledger.begun.table_ids, f"sink/{flow.sink(1)}"
    one = next(site for site in sites_to_seal(ledger.begun, flow.place, ledger.id, every) if site.name == kept)
    with pytest.raises(PySparkException):
        seal(_ReadOnly(), one, every)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        seal(_ReadOnly(), one, [name for name in every if name != kept])  # type: ignore[arg-type]
    assert f"{kept}: the rule's file no longer has this sink, and it cannot be" in caplog.text


@pytest.mark.parametrize("removed", [True, False])
def test_a_reset_begins_although_the_folder_of_a_removed_sink_cannot_be_asked(place: Path, removed: bool) -> None:
    """The operating system answers for a link to a name that is too long as for a mount that is gone: with an error."""
    flow = Flow(place)
    lived(flow)
    rmtree(flow.sink(1))
    Path(flow.sink(1)).symlink_to("x" * 300)
    flow.sinks = 1 if removed else 2
    if removed:
        return check_without_jvm(flow.rule(), flow.home)
    with pytest.raises(RunFailed, match=r"the table cannot be read now: .*File name too long"):
        check_without_jvm(flow.rule(), flow.home)


@pytest.mark.parametrize("lost", ["", "_delta_log"])
def test_a_killed_reset_is_completed_although_a_removed_sink_cannot_be_read(place: Path, lost: str) -> None:
    """Its folder cannot be asked, or a killed upkeep has left a copy of its log, which cannot be read."""
    flow = Flow(place)
    ledger = lived(flow)
    away = Path(flow.sink(1), lost)
    rmtree(away)
    away.symlink_to("x" * 300)
    if lost:
        Path(flow.sink(1), HELD).mkdir()
    flow.sinks = 1
    ledger.seal(Seal(why="reset", successor=2, token="other", keep_output=False, discarded=None))
    found = look(flow.rule(), flow.home)
    assert found.why is not None and "reset" in found.why
    check_without_jvm(flow.rule(), flow.home)
