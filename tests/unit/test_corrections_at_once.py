"""A correction that another run has in hand: who leaves it says so, and names the run that holds it."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from support.byhand import begun, folded
from support.flow import Flow, event
from test_doctor import locked
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.commands import correct as cli_correct
from floodmark.cli.shared.doctorchecks import _holders
from floodmark.connectors.backlog.news import look
from floodmark.connectors.planning.rewrites import deferred, rewrites
from floodmark.core.health.storage import locks
from floodmark.errors import Busy
from floodmark.ledger.holder import holder_text, owner_file
from floodmark.spark.rule import run as runs
from floodmark.spark.rule.epochs.reports import RunReport
from floodmark.spark.rule.held import HeldRule
from floodmark.spark.rule.run import RuleRun

LEFT = "rewrites of events are left to the run that corrects them: run other corrects the rule, since 2001-01-01"


@pytest.fixture
def flow(place: Path) -> Flow:
    """A rule with a rewrite that was deferred."""
    made = Flow(place.resolve(), stream={"on_rewrite": "correct"}, sinks=1)
    ledger = begun(made)
    made.arrive([event(2, "b")])
    folded(made, ledger, 2, 2, None)
    DeltaTable(made.source).delete("k = 'b'")
    ledger.defer(deferred(made.rule(), made.place, ledger.begun, rewrites(made.rule(), made.place, ledger.begun)))
    return made


@contextmanager
def corrected_elsewhere(flow: Flow) -> Iterator[int]:
    """Another process holds the lock of corrections; its driver is gone."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    with locked(flow.place.correcting) as pid:
        owner = {"run": "other", "host": socket.gethostname(), "driver_pid": gone.pid, "jvm_pid": pid}
        owner_file(flow.place.correcting).write_text(json.dumps({**owner, "since": "2001-01-01"}))
        yield pid


def said(flow: Flow, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*words, "--rules", str(flow.root / "rules"), "--home", str(flow.home)])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


def test_a_run_that_leaves_a_correction_to_another_names_it(flow: Flow) -> None:
    assert look(flow.rule(), flow.home).notices == ()
    with corrected_elsewhere(flow) as pid:
        news = look(flow.rule(), flow.home)
        assert news.why is None and len(news.notices) == 1
        assert news.notices[0].startswith(LEFT) and f"left an orphaned JVM: `kill {pid}` ends it" in news.notices[0]
        assert f"warning: {LEFT}" in said(flow, "run", flow.name)
    assert look(flow.rule(), flow.home).why == "rewrites of events are to be corrected"


def test_status_and_doctor_name_the_run_that_corrects(flow: Flow) -> None:
    with corrected_elsewhere(flow) as pid:
        assert f"corrector run other corrects the rule, since 2001-01-01 on {socket.gethostname()}" in said(
            flow, "status", flow.name
        )
        (found,) = [one for one in locks(_holders(flow.home)) if one.name == "lock of correction of counted"]
        assert found.verdict == "warning" and f"`kill {pid}` ends it" in found.found


def test_a_run_that_finds_the_correction_taken_reports_by_whom(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(session: Any, lock: Path, run: str) -> Any:
        raise Busy(holder_text(lock))

    monkeypatch.setattr(runs.lock, "held", taken)
    run = RuleRun(cast("Any", None), flow.rule(), flow.home, "run", lambda _: None)
    with corrected_elsewhere(flow):
        run._correct_deferred(cast("HeldRule", SimpleNamespace(head=flow.ledger().head)))
    assert run._report.left is not None and run._report.left.startswith(LEFT)


@pytest.mark.parametrize(("skip", "code"), [([], 1), (["--skip"], 0)])
def test_correct_fails_where_another_run_corrects(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, skip: list[str], code: int
) -> None:
    """Who gives a correction up has done so, whoever else corrects another stream."""
    monkeypatch.setattr(cli_correct, "with_spark", lambda *_: RunReport("counted", left=LEFT))
    told = said(flow, "correct", flow.name, *skip, "--yes", code=code)
    assert f"counted: {LEFT}" in told and ("run `floodmark correct counted` again" in told) == (not skip)
