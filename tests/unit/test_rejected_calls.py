"""A call of a class that raises is undone, and its rows are given back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from floodmark.core.process.calls import Caller, Rejected
from floodmark.core.process.context import Declaration, Times
from floodmark.core.process.slots import Change, Slot, Slots
from floodmark.errors import ProcessFault


def test_changes_since_a_mark_are_undone() -> None:
    slots = Slots({("a", ""): Slot((1,), 5), ("t", "x"): Slot(7, 5)})
    slots.put(("a", ""), (2,), 6)
    slots.mark()
    slots.put(("a", ""), (3,), 7)
    slots.put(("a", ""), (4,), 7)
    slots.drop(("t", "x"))
    slots.put(("b", "new"), 1, 7)
    slots.undo()
    assert list(slots.changes()) == [Change(("a", ""), Slot((2,), 6))]
    assert (slots.table("b"), slots.table("t")) == ({}, {"x": Slot(7, 5)})


class Fussy:
    output = "n BIGINT"
    state: ClassVar = {"sum": "n BIGINT"}

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        for row in rows:
            total = (ctx.get_state("sum") or {"n": 0})["n"] + row["n"]
            ctx.put_state("sum", (total,))
            row["tags"].append("seen")
            yield (total,)
            if row["n"] == 9:
                raise ValueError("nine")

    def on_timer(self, key: Any, at: datetime, name: str, ctx: Any) -> Any:
        raise ValueError("no")


def caller(rejects: bool) -> Caller:
    times = Times(0, 100, 0)
    return Caller(Fussy, Fussy.output, Declaration(Fussy.state, {}, True, False), times, rejects=rejects)


def given() -> list[tuple[int, dict[str, Any]]]:
    return [(at, {"n": n, "tags": []}) for at, n in ((1, 1), (2, 2), (2, 9), (3, 3))]


def test_a_call_that_raises_gives_its_rows_back_as_they_came_and_nothing_else() -> None:
    found = list(caller(rejects=True).turn(("a",), {}, given()))
    rejected = [one for one in found if isinstance(one, Rejected)]
    assert [one for one in found if not isinstance(one, (Rejected, Change))] == [(1,), (4,)]
    assert [one.rows for one in rejected] == [({"n": 2, "tags": []}, {"n": 9, "tags": []})]
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=2)
    assert rejected[0].reason == f"process fails for key ('a',), event time {at}: ValueError: nine"
    assert found[-1] == Change(("sum", ""), Slot((4,), 3))


def test_without_that_it_is_a_fault_and_a_timer_that_raises_always_is() -> None:
    with pytest.raises(ProcessFault, match="nine"):
        list(caller(rejects=False).turn(("a",), {}, given()))
    with pytest.raises(ProcessFault, match="on_timer fails"):
        list(caller(rejects=True).turn(("a",), {("timers", ""): Slot(50, 0)}, []))


class Ending(Fussy):
    """Stores more once its output is found wrong."""

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        try:
            yield ("no number",)
        finally:
            ctx.put_state("sum", (7,))


def test_what_a_class_stores_when_its_output_is_wrong_is_undone_too() -> None:
    kept = Declaration(Ending.state, {}, False, False)
    found = list(Caller(Ending, Ending.output, kept, Times(0, 100, 0), rejects=True).turn(("a",), {}, given()))
    assert [type(one) for one in found] == [Rejected] * 3
