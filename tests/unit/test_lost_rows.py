"""Rows that a relay loses at `qos: 0`: their number and epochs are told, and kept until the target is emptied."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.flow import event
from support.outboxed import Outboxed
from test_refused_rows import lines, own

from floodmark.connectors.relay.memory import recall
from floodmark.connectors.relay.shipping import Shipping, shipping

WHY = "lost at `qos: 0`: sink down:Down.apply raised OSError: the server is down"
CLASS = """
import json
from pathlib import Path


class Down:
    def __init__(self, path):
        self.path = Path(path)

    def apply(self, batch, token):
        if self.path.with_suffix(".down").exists():
            raise OSError("the server is down")
        with self.path.open("a") as file:
            file.writelines(json.dumps([n]) + "\\n" for n in batch["n"].to_pylist())

    def empty(self, token):
        self.path.unlink(missing_ok=True)
"""


@pytest.fixture
def rule(place: Path) -> Outboxed:
    (place / "rules").mkdir()
    (place / "rules" / "down.py").write_text(CLASS)
    found = Outboxed(place, {"python": {"class": "down:Down", "settings": {"path": str(place / "rows")}}, "qos": 0})
    (place / "rows.down").touch()
    return found


def test_rows_that_a_target_did_not_take_are_told_and_remembered(rule: Outboxed, place: Path) -> None:
    rule.epoch([event(1, n=1), event(1, n=2)])
    rule.epoch([event(1, n=3)])
    lost = f"may lack 1 row of epoch 2, {WHY}"
    done = rule.relays.ship("--json")
    [facts] = json.loads(done.said)["targets"]
    assert (done.code, facts["lost"], facts["lost_epochs"]) == (1, 2, [1])
    done = rule.relays.ship()
    assert (done.code, lost in done.said) == (1, True), done.said
    (place / "rows.down").unlink()
    assert rule.relays.ship().code == 0
    said = rule.command("status", "refused")[1]
    assert "it may lack 3 rows that were lost at `qos: 0`, the last 1 row of epoch 2 at " in said
    rule.epoch([event(1, n=4)])
    assert (rule.relays.ship().code, lines(place / "rows")) == (0, [[4]])
    assert recall(Path(rule.outbox)).lost == 3
    rule.begin()
    rule.epoch([event(1, n=5)])
    assert (rule.relays.ship().code, lines(place / "rows")) == (0, [[5]])
    assert "were lost" not in rule.command("status", "refused")[1]


def test_a_run_warns_of_them_although_nothing_is_left_to_ship(rule: Outboxed) -> None:
    """Its relay tries again at the end, and finds nothing."""
    rule.epoch([event(1, n=1)])
    found = Shipping()
    with shipping(rule.flow.rule(), rule.flow.place, found):
        found.wake()
        until = time.monotonic() + 60
        while not recall(Path(rule.outbox)).lost:
            assert time.monotonic() < until
    [one] = found.delivered
    assert (one.lost.rows, one.lost.epochs, one.exit_code) == (1, (1,), 0)
    assert f"may lack 1 row of epoch 1, {WHY}" in one.text()


def test_a_row_that_stops_a_relay_is_not_said_to_come_later(place: Path) -> None:
    rule, path = own(place, "Again", qos=0, on_error="stop")
    rule.epoch([event(1, n=2), event(1, n=3)])
    done = rule.relays.ship()
    assert (done.code, "lost at `qos: 0`" in done.said, "the next relay sets" in done.said) == (3, True, False)
    assert (rule.relays.ship().code, path.exists()) == (0, False)
