"""Which table is which sink, by the addresses that a rule and its ledger have for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.audited import Made
from test_audit import World, changed

from floodmark.audit.effects.sinktables import matched, tables_of


@pytest.mark.parametrize(
    ("addresses", "places", "found"),
    [
        (["/lake/out"], ["/lake/out"], ["/lake/out"]),
        (["file:///lake/o%20t"], ["/lake/o t"], ["/lake/o t"]),
        (["/lake//./out/"], ["/lake/out"], ["/lake/out"]),
        (["lake/out"], ["/somewhere/lake/out"], ["/somewhere/lake/out"]),
        (["../lake/out"], ["/somewhere/lake/out"], ["/somewhere/lake/out"]),
        (["s3://b//x"], ["s3://b/x"], ["s3://b/x"]),
        (["out", "a/out"], ["/w/a/out", "/w/out"], ["/w/out", "/w/a/out"]),
        (["lake/b", "lake/a"], ["/w/lake/a", "/w/lake/b"], ["/w/lake/b", "/w/lake/a"]),
        (["/link/one", "/link/two"], ["/real/x", "/real/y"], ["/real/x", "/real/y"]),
        (["/link", "/w/b"], ["/w/b", "/real/x"], ["/real/x", "/w/b"]),
        (["out"], ["/w/out", "/w/late/out"], None),
        (["/link/one"], ["/real/x", "/real/y"], None),
        (["/w/out"], [], ["/w/out"]),
        (["/w/new", "out"], ["/w/out"], ["/w/new", "/w/out"]),
        (["/link", "/w/out", "/new"], ["/w/out", "/real/x"], None),
        ([], ["/w/out"], []),
    ],
)
def test_a_sink_is_the_table_that_is_spelled_alike_or_ends_alike_or_is_next(
    addresses: list[str], places: list[str], found: list[str] | None
) -> None:
    assert matched(tuple(addresses), tuple(places)) == (None if found is None else tuple(found))


@pytest.mark.parametrize(
    ("moved", "first"),
    [({}, "sink//w/a"), ({"1": "/w/b", "2": "/w/a"}, "sink//w/b"), ({"1": "/new/a", "2": "/w/a"}, "sink//w/b")],
    ids=["never", "exchanged", "moved on"],
)
def test_a_sink_is_the_table_that_lay_at_its_address_then(moved: dict[str, str], first: str) -> None:
    ids = {"sink//w/a": "1", "sink//w/b": "2", "late": "3"}
    places = [moved.get("1", "/w/a"), moved.get("2", "/w/b")]
    sinks = [{"kind": "delta", "address": one} for one in ("/w/a", next(one for one in places if one != "/w/a"))]
    found = tables_of(sinks, ids, moved)
    assert found is not None and [name for name, sink in found.items() if sink is sinks[0]] == [first]
    assert found.keys() == ids.keys() - {"late"}


@pytest.mark.parametrize("spelled", ["lake/out", "/a/link/out", "/a/link"])
def test_what_an_address_means_now_is_of_no_matter(spelled: str) -> None:
    """A working directory or a link that is another one by now: the ledger has what was meant when it was written."""
    assert World(taking={"address": spelled}).findings() == []
    assert World(taking={"address": spelled}, output=3).findings() != []


def test_a_sink_that_cannot_be_told_is_unknown_and_said_once() -> None:
    world = World(taking={"address": "/a/link"})
    changed(world, 0, table_ids={**world.bodies[0][3]["table_ids"], "sink/lost": "id"})
    found = [one for one in world.findings() if one.table is None]
    assert [(one.verdict, one.epoch) for one in found] == [("unknown", 1)]
    assert "which sink of the rule is which of the ledger's tables" in found[0].what


def test_a_ledger_that_knows_of_no_sink_at_all_lacks_their_rows() -> None:
    world = World()
    for at, body in enumerate(body for _, _, _, body in world.bodies):
        for field in ("table_ids", "tables"):
            if field in body:
                changed(world, at, **{field: {k: v for k, v in body[field].items() if not k.startswith("sink/")}})
    found = [one for one in world.findings() if one.table == "sink//lake/out"]
    assert {(one.verdict, one.what) for one in found} == {
        ("broken", "the epoch has 2 rows for it, the ledger names none")
    }


def test_a_rule_with_a_relative_address_is_proven_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Relative(Made):
        def _fold(self, number: int) -> None:
            self.rule = json.dumps(
                {**json.loads(self.rule), "sinks": [{"kind": "delta", "address": "lake/out", "qos": 2}]}
            )
            super()._fold(number)

    (tmp_path / "elsewhere").mkdir()
    made = Relative(tmp_path, 2)
    for place in (tmp_path, tmp_path / "elsewhere"):
        monkeypatch.chdir(place)
        assert made.verdicts(deep=True) == []
