"""A run ends though the class of a target hangs; all other targets have as long as they take."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.flow import event
from support.outboxed import Outboxed

from floodmark.connectors.relay import shipping
from floodmark.connectors.relay.memory import recall
from floodmark.connectors.relay.shipping import Delivered, Shipping, ship_all, ship_one
from floodmark.errors import RunFailed

CLASS = """
import time
from pathlib import Path


class Slow:
    def __init__(self, path, seconds):
        self.path, self.seconds = Path(path), seconds

    def apply(self, batch, token):
        time.sleep(self.seconds)
        for _ in range(1000):
            if self.path.with_suffix(".hangs").exists():
                time.sleep(0.01)
        with self.path.open("a") as file:
            file.writelines(f"{n} " for n in batch["n"].to_pylist())
"""


def slow(place: Path, seconds: float) -> tuple[Outboxed, Path]:
    (place / "rules").mkdir()
    (place / "rules" / "slow.py").write_text(CLASS)
    path = place / "rows"
    sink = {"python": {"class": "slow:Slow", "settings": {"path": str(path), "seconds": seconds}}, "qos": 1}
    return Outboxed(place, sink), path


def beside_a_run(rule: Outboxed) -> list[Delivered]:
    found = Shipping()
    with shipping.shipping(rule.flow.rule(), rule.flow.place, found):
        found.wake()
    return found.delivered


def idle(rule: Outboxed) -> list[Delivered]:
    return ship_all(rule.flow.rule(), rule.flow.place)


@pytest.mark.parametrize("end", [beside_a_run, idle])
def test_a_class_that_hangs_does_not_keep_a_run(place: Path, monkeypatch: pytest.MonkeyPatch, end: Any) -> None:
    rule, path = slow(place, 0)
    rule.epoch([event(1, n=2)])
    path.with_suffix(".hangs").touch()
    monkeypatch.setattr(shipping, "LONGEST", 0.3)
    [one] = end(rule)
    assert isinstance(one.fault, RunFailed)
    assert one.text().startswith("target slow:Slow is behind: sink slow:Slow: expected a call of the class to return")
    assert recall(Path(rule.outbox)).fault == str(one.fault)
    path.with_suffix(".hangs").unlink()
    until = time.monotonic() + 60
    while not path.exists() or recall(Path(rule.outbox)).position is None:  # the thread that was left alone
        assert time.monotonic() < until
    assert ship_one(rule.flow.rule(), rule.sink, rule.flow.place).fault is None
    assert path.read_text() == "2 "


def test_a_class_that_is_slow_has_its_time_for_each_portion(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, path = slow(place, 1.5)
    for n in (1, 2, 3):
        rule.epoch([event(1, n=n)])
    monkeypatch.setattr(shipping, "LONGEST", 4.0)
    [one] = idle(rule)
    assert (one.fault, path.read_text()) == (None, "1 2 3 ")


def test_a_target_that_is_no_class_has_as_long_as_it_takes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Outboxed(place, {"files": {"path": str(place / "kept")}})
    rule.epoch([event(1, n=1)])
    monkeypatch.setattr(shipping, "LONGEST", 0.0)
    [one] = beside_a_run(rule)
    assert (one.fault, one.rows) == (None, 1)
