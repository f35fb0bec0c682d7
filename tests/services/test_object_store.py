"""Rules whose sources and sinks lie in a store of objects, spoken to by S3; the home is on a file system, as ever."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from obstore.store import S3Store
from support.flow import SCHEMA, START, Flow, event, rows_of
from support.lifekilling import said, stopped
from support.objects import BUCKET, Store, served
from support.oracle import ordered, tumbling

from floodmark.proving.play.processes import of_session

POINTS = ("intent.after", "sink0.before", "sink0.after", "sink1.after", "commit.before")
pytestmark = [pytest.mark.prove, pytest.mark.timeout(900)]  # each run is a JVM of its own


@dataclass
class FarFlow(Flow):
    """A flow whose lake is not below its root."""

    lake: str = ""

    @property
    def source(self) -> str:
        return f"{self.lake}/{self.name}_events"

    def sink(self, number: int = 0) -> str:
        return f"{self.lake}/{self.name}_out{number}"

    def arrive(self, events: Iterable[Mapping[str, Any]]) -> None:
        write_deltalake(self.source, pa.Table.from_pylist(list(events), schema=SCHEMA), mode="append")


@pytest.fixture
def store(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with served(place) as found:
        for name, value in found.env.items():
            monkeypatch.setenv(name, value)
        yield found


def flow_of(place: Path, store: Store, name: str, **settings: Any) -> FarFlow:
    spark = {"shuffle_partitions": 2, "conf": store.conf}
    flow = FarFlow(place, name, settings={"epoch": {"max_files": 1}, "spark": spark, **settings}, lake=store.lake)
    flow.write_rule()
    return flow


def kill_at(point: str, flow: FarFlow, *words: str) -> None:
    with stopped(flow, point, *words) as leader:
        assert len(of_session(leader)) >= 2, "Python and its JVM"


def out(flow: FarFlow, sink: int = 0) -> list[tuple[Any, ...]]:
    return ordered(tuple(row.values()) for row in rows_of(flow.sink(sink)))


def verdict(flow: FarFlow) -> str:
    return str(json.loads(said(flow, "audit", flow.name, "--deep", "--json"))["verdict"])


def test_a_run_is_killed_in_each_of_five_epochs(place: Path, store: Store) -> None:
    added, keyed = f"{store.lake}/counted_out0", f"{store.lake}/counted_out1"
    sinks = [{"delta": added}, {"delta": keyed, "key": ["start", "k"]}]
    flow, events = flow_of(place, store, "counted", sinks=sinks), []
    for epoch, point in enumerate(POINTS, start=1):
        portion = [event(second, k) for second in range(300 * (epoch - 1), 300 * epoch, 5) for k in "abc"]
        flow.arrive(portion)
        events += portion
        kill_at(f"{point}@{epoch}", flow, "run", flow.name)
    said(flow, "run", flow.name)
    expected = tumbling(events, START + timedelta(seconds=300 * len(POINTS) - 5 - 30))
    assert out(flow) == out(flow, 1) == expected
    assert verdict(flow) == "proven"
    said(flow, "reset", flow.name, "--yes")
    said(flow, "run", flow.name)
    assert out(flow) == out(flow, 1) == expected
    assert verdict(flow) == "proven"


def test_a_backfill_is_killed_before_and_after_it_has_replaced(place: Path, store: Store) -> None:
    flow = flow_of(place, store, "mended")
    events = [event(second, k) for second in range(0, 600, 5) for k in "abc"]
    late = [event(second, "late") for second in range(0, 300, 7)]
    for portion in (events, late):
        flow.arrive(portion)
        said(flow, "run", flow.name)
    watermark = START + timedelta(seconds=565)
    assert out(flow) == tumbling(events, watermark)
    interval = ("--from", START.isoformat(), "--to", (START + timedelta(minutes=5)).isoformat())
    for point in ("backfill.sink.before", "backfill.sink.after"):
        kill_at(point, flow, "backfill", flow.name, *interval)
    said(flow, "run", flow.name)
    assert out(flow) == out(flow, 1) == tumbling([*events, *late], watermark)
    assert verdict(flow) == "proven"


def test_dropped_objects_are_folded_once_and_overwritten_ones_are_noticed(place: Path, store: Store) -> None:
    """A run is killed behind its sink; an object is then put again as it was, and another one with other content."""
    flow, drops = flow_of(place, store, "dropped"), f"{store.lake}/dropped in"
    files = {"path": drops, "format": "json", "schema": "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT", "recursive": True}
    flow.stream = {"delta": None, "files": files}
    flow.write_rule()
    objects = S3Store(BUCKET, prefix="dropped in", client_options={"allow_http": True})
    events = [event(second, k) for second in range(0, 600, 5) for k in "abc"]
    written = {f"day {i // 6}/{i:02}+%.json": events[30 * i : 30 * i + 30] for i in range(12)}
    for number, (path, rows) in enumerate(written.items()):
        obstore.put(objects, path, records(rows))
        if number in (4, 8):
            kill_at(f"sink0.after@{number // 2 - 1}", flow, "run", flow.name)
    said(flow, "run", flow.name)
    expected = tumbling(events, START + timedelta(seconds=565))
    assert out(flow) == out(flow, 1) == expected
    assert verdict(flow) == "proven"
    path, rows = list(written.items())[-1]
    obstore.put(objects, path, records(rows))
    assert "nothing new" in said(flow, "status", flow.name)
    said(flow, "run", flow.name)
    assert out(flow) == expected
    obstore.put(objects, path, records(rows).replace(b'"a"', b'"z"'))
    obstore.put(objects, "more.json", records([event(700)]))
    assert f"file {path} was changed after it was read" in said(flow, "run", flow.name, code=3)
    said(flow, "reset", flow.name, "--yes")
    said(flow, "run", flow.name)
    changed = [{**one, "k": "z"} if one["k"] == "a" else one for one in rows]
    assert out(flow) == tumbling([*events[:-30], *changed, event(700)], START + timedelta(seconds=670))


def records(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps({**row, "at": row["at"].isoformat()}) + "\n" for row in rows).encode()


def test_a_sink_whose_table_is_gone_stops_the_rule(place: Path, store: Store) -> None:
    flow = flow_of(place, store, "moved")
    flow.arrive([event(second) for second in range(0, 300, 5)])
    said(flow, "run", flow.name)
    (place / "objects" / "lake" / "moved_out0").rename(place / "taken")
    flow.arrive([event(second) for second in range(300, 600, 5)])
    assert flow.sink() in said(flow, "run", flow.name, code=3)
