"""Relays of one target at once: one is overtaken while it asks the target, and nothing looks as if it had gone back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.flow import event
from support.outboxed import Outboxed
from test_refused_rows import lines, own

from floodmark.cli.shared.doctorchecks import _holders
from floodmark.connectors.relay import relaying, room
from floodmark.connectors.relay import shipping as shipping_beside
from floodmark.connectors.relay.alone import Alone, relays_at_work
from floodmark.connectors.relay.aside import Aside
from floodmark.connectors.relay.memory import recall
from floodmark.connectors.relay.relaying import check_targets
from floodmark.connectors.relay.shipping import Shipping, ship_one, shipping
from floodmark.connectors.targets.python.target import OnceTarget
from floodmark.errors import Busy, Fenced, Refused
from floodmark.ledger.home import Home
from floodmark.ledger.renaming import rename
from floodmark.views.status.rulestatus import rule_status


def ship(rule: Outboxed) -> Exception | None:
    return ship_one(rule.flow.rule(), rule.sink, rule.flow.place).fault


@pytest.fixture
def overtake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Outboxed, str, bool], None]:
    """Before the target's next answer is known, or after it, an epoch comes and another relay ships it."""

    def by_another(rule: Outboxed, method: str, after: bool) -> None:
        ask = getattr(OnceTarget, method)

        def overtaken(*given: Any) -> Any:
            monkeypatch.setattr(OnceTarget, method, ask)
            found = ask(*given)
            rule.epoch([event(1, n=4)])
            assert ship(rule) is None
            return found if after else ask(*given)

        monkeypatch.setattr(OnceTarget, method, overtaken)

    return by_another


@pytest.mark.parametrize(("after", "fault"), [(False, type(None)), (True, Fenced)])
def test_a_relay_that_another_overtakes_says_so_at_most(
    place: Path, overtake: Callable[[Outboxed, str, bool], None], after: bool, fault: type
) -> None:
    """It never says that the target was restored from a copy, or that the home is one."""
    rule, path = own(place, "Once")
    rule.epoch([event(1, n=2)])
    assert ship(rule) is None
    overtake(rule, "claim", after)
    assert isinstance(ship(rule), fault)
    assert (ship(rule), [n for n, *_ in lines(path)]) == (None, [2, 4])


@pytest.mark.parametrize(("name", "qos"), [("Once", 2), ("Again", 1)])
def test_relays_that_meet_the_same_refused_row_set_it_aside_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str, qos: int
) -> None:
    rule, path = own(place, name, qos=qos)
    rule.epoch([event(1, n=2), event(1, n=3)])
    add = Aside.add

    def added_by_another(*given: Any) -> int:
        assert add(*given) == 1
        return add(*given)

    monkeypatch.setattr(Aside, "add", added_by_another)
    assert ship(rule) is None
    assert ([n for n, *_ in lines(path)], rule.undelivered()) == ([2], [(3, 1, 3)])


@pytest.mark.parametrize(("name", "qos"), [("Once", 0), ("Again", 0), ("Once", 1), ("Again", 1)])
def test_a_relay_waits_for_none_and_ships_beside_none_where_rows_and_position_move_apart(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str, qos: int
) -> None:
    """Else the position moves beneath it: at `qos: 0` it books rows as lost, at 1 an older row comes over a newer."""
    rule, path = own(place, name, qos=qos)
    rule.epoch([event(1, n=2)])
    beside: list[Exception | None] = []

    def by_another(of: str, point: str, *_: int) -> None:
        if point == "relay.between" and not beside:
            rule.epoch([event(1, n=4)])
            beside.append(ship(rule))

    monkeypatch.setattr(relaying, "reach", by_another)
    assert ship(rule) is None
    assert [type(one) for one in beside] == [Busy]
    assert f"already ships to target odd_{name}; wait for it to end" in str(beside[0])
    assert recall(Path(rule.outbox)).fault is None, "it says nothing of the target"
    assert (ship(rule), [n for n, *_ in lines(path)]) == (None, [2, 4])


@pytest.mark.parametrize("qos", [0, 1])
def test_a_relay_beside_another_claims_nothing(place: Path, monkeypatch: pytest.MonkeyPatch, qos: int) -> None:
    """A claim of a Kafka topic ends the transaction of the relay that is at work."""
    rule, path = own(place, "Once", qos=qos)
    rule.epoch([event(1, n=2)])
    claim, claims, beside = OnceTarget.claim, list[str](), list[Exception | None]()

    def watch(*given: Any) -> Any:
        claims.append("claim")
        return claim(*given)

    def by_another(of: str, point: str, *_: int) -> None:
        if point == "relay.between":
            beside.append(ship(rule))

    monkeypatch.setattr(OnceTarget, "claim", watch)
    monkeypatch.setattr(relaying, "reach", by_another)
    assert ship(rule) is None
    assert ([type(one) for one in beside], claims) == ([Busy], ["claim"])
    assert [n for n, *_ in lines(path)] == [2]


def test_a_relay_with_nothing_to_ship_asks_for_no_lock(place: Path) -> None:
    rule, _ = own(place, "Once", qos=0)
    rule.epoch([event(1, n=2)])
    assert ship(rule) is None
    with closing(Alone(Path(rule.outbox))) as other:
        other.take()
        assert ship(rule) is None


def test_a_relay_beside_another_process_names_it_and_a_kill_frees_the_target(place: Path) -> None:
    rule, path = own(place, "Again", qos=1)
    rule.epoch([event(1, n=2)])
    with rule.relays.stopped_at("relay.between") as other:
        fault = ship(rule)
        assert isinstance(fault, Busy) and str(fault).startswith("another relay ships to target odd_Again, since ")
        assert f"(driver {other.pid}); wait for it to end" in str(fault)
        assert rule_status(rule.flow.rule(), rule.flow.home).relays == {"odd:Again": str(fault)}
        assert [(name, one and one.text) for name, one in _holders(rule.flow.home).items()] == [
            ("relay to odd_Again of refused", str(fault))
        ]
    assert (rule_status(rule.flow.rule(), rule.flow.home).relays, _holders(rule.flow.home)) == ({}, {})
    assert (ship(rule), [n for n, *_ in lines(path)]) == (None, [2, 2])


def test_a_look_at_a_target_knows_an_epoch_that_is_shipped_meanwhile(
    place: Path, overtake: Callable[[Outboxed, str, bool], None]
) -> None:
    rule, _ = own(place, "Once")
    rule.epoch([event(1, n=2)])
    assert ship(rule) is None
    overtake(rule, "position", False)
    check_targets(rule.flow.rule(), rule.flow.place)


def test_a_run_that_begins_with_a_full_outbox_ships_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its relay works before the run has committed anything, since it may have to wait for that."""
    monkeypatch.setattr(room, "PATIENCE", 60.0)
    rule, path = own(place, "Once", outbox={"max_bytes": 1})
    rule.epoch([event(1, n=2)])
    found = Shipping()
    with shipping(rule.flow.rule(), rule.flow.place, found):
        room.wait_for_room(rule.flow.rule(), rule.flow.place, rule.ledger)
        assert [n for n, *_ in lines(path)] == [2]
    assert [(one.rows, one.fault) for one in found.delivered] == [(1, None)]


@pytest.mark.parametrize("fault", [Busy("another relay ships"), Fenced("another relay has moved it")])
def test_a_run_ships_for_itself_once_another_relay_has_ended(
    place: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """The other one ships only what it has found at first. The run waits for room, and commits nothing before."""
    monkeypatch.setattr(room, "PATIENCE", 3.0)
    monkeypatch.setattr(shipping_beside, "AGAIN", 0.01)
    rule, path = own(place, "Again", qos=1, outbox={"max_bytes": 1})
    rule.epoch([event(1, n=2)])
    take, looks = Alone.take, [fault]

    def taken(alone: Alone) -> None:
        if looks:
            raise looks.pop()
        take(alone)

    monkeypatch.setattr(Alone, "take", taken)
    found = Shipping()
    with shipping(rule.flow.rule(), rule.flow.place, found):
        room.wait_for_room(rule.flow.rule(), rule.flow.place, rule.ledger)
        assert [n for n, *_ in lines(path)] == [2]
    assert [(one.rows, one.fault) for one in found.delivered] == [(1, None)]


def test_a_relay_of_a_rules_old_name_says_that_it_was_renamed(place: Path) -> None:
    rule, path = own(place, "Once")
    rule.epoch([event(1, n=2)])
    rename(rule.ledger, rule.flow.place, Home(rule.flow.home, "other"))
    found = ship_one(rule.flow.rule(), rule.sink, rule.flow.place)
    assert (type(found.fault), found.exit_code, path.exists()) == (Refused, 2, False)
    assert str(found.fault).startswith("rule refused was renamed to other")


def test_a_look_from_the_process_of_a_relay_leaves_it_its_lock(place: Path) -> None:
    """The system frees a lock as soon as its process closes any handle on the file."""
    rule, _ = own(place, "Again", qos=1)
    rule.epoch([event(1, n=2)])
    with closing(Alone(Path(rule.outbox))) as alone:
        alone.take()
        assert relays_at_work(rule.flow.rule(), rule.flow.place) == {}
        other = rule.relays.ship()
        assert (other.code, "another relay ships to target odd_Again" in other.said) == (1, True)
