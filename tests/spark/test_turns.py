"""What executors get of a class: all of it, and nothing that they would have to find themselves."""

from __future__ import annotations

import subprocess
import sys
import sysconfig

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from support.flow import CLASSES

import floodmark
from floodmark.core.process.context import Declaration, Times
from floodmark.errors import ProcessFault
from floodmark.spark.fold.process.turns import REJECTED, Layout, Work, worker

LAYOUT = Layout(keys=1, streams=(("s", ("k", "at")),), tables=("counters",), states=(), output=3)
GIVEN = pa.schema([("k0", pa.string()), ("waits", pa.bool_()), ("part", pa.int32()), ("time", pa.int64()),
                   ("gone", pa.bool_()), ("name", pa.string()), ("number", pa.int64()), ("r0_0", pa.string()),
                   ("r0_1", pa.timestamp("us", "Europe/Berlin"))])  # fmt: skip
TAKEN = pa.schema([("part", pa.int32()), ("k0", pa.string()), ("time", pa.int64()), ("gone", pa.bool_()),
                   ("name", pa.string()), ("number", pa.int64()), ("o0", pa.string()),
                   ("o1", pa.timestamp("us", "UTC")), ("o2", pa.string())])  # fmt: skip
ALONE = """
import sys
sys.path.append(sys.argv[1])  # the packages, without the .pth files that would bring this one
import pyarrow as pa
from pyspark import cloudpickle
turns, batch = cloudpickle.loads(sys.stdin.buffer.read())
for found in turns(iter([batch])):
    print(found.select(["part", "o2", "number"]).to_pylist())
try:
    import floodmark
except ImportError:
    print("alone")
"""


def test_a_worker_needs_no_copy_of_this_package() -> None:
    source = (CLASSES / "both.py").read_text()
    output = "k STRING, at TIMESTAMP, what STRING"
    kept, times = Declaration({}, {}, False, False), Times(0, 9, 9)
    work = Work(LAYOUT, source, "both.py", "Both", output, kept, times, rejects=True, schema=TAKEN)
    stored = {"k0": "a", "waits": False, "part": 0, "time": 0, "gone": False, "name": "rows", "number": 7}
    row = {"k0": "a", "waits": True, "part": 0, "time": 5, "r0_0": "a", "r0_1": 5}
    batch = pa.RecordBatch.from_pylist([stored, row], schema=GIVEN)
    cloudpickle.register_pickle_by_value(floodmark)
    sent = cloudpickle.dumps((worker(work), batch))
    command = [sys.executable, "-I", "-S", "-c", ALONE, sysconfig.get_paths()["purelib"]]
    found = subprocess.run(command, input=sent, capture_output=True, check=False)
    assert found.stdout.decode().splitlines() == [
        "[{'part': -1, 'o2': 's 7', 'number': None}]",
        "[{'part': 0, 'o2': None, 'number': 8}]",
        "alone",
    ], found.stderr.decode()


def given(**columns: pa.Array) -> pa.RecordBatch:
    """Two rows of stream `s`, keys a and b."""
    rows = [{"k0": key, "waits": True, "part": 0, "time": 5, "r0_0": key} for key in "ab"]
    batch = pa.RecordBatch.from_pylist(rows, schema=GIVEN)
    for name, column in columns.items():
        batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    return batch


def turned(batch: pa.RecordBatch, *, rejects: bool = False) -> list[pa.RecordBatch]:
    kept, times = Declaration({}, {}, False, False), Times(0, 9, 9)
    source = (CLASSES / "both.py").read_text()
    output = "k STRING, at TIMESTAMP, what STRING"
    schema = TAKEN
    for name, kind in (("why", pa.string()), ("r0_0", batch["r0_0"].type), ("r0_1", in_utc(batch["r0_1"].type))):
        schema = schema.append(pa.field(name, kind))
    return list(worker(Work(LAYOUT, source, "both.py", "Both", output, kept, times, rejects, schema))(iter([batch])))


def in_utc(kind: pa.DataType) -> pa.DataType:
    return IN_UTC if pa.types.is_timestamp(kind) and kind.tz else kind


IN_UTC = pa.timestamp("us", "UTC")
NO_TEXT = pa.array([b"good", b"\xff\xfe"]).view(pa.string())
BEYOND = {
    "after": pa.array([0, 253402318799 * 10**6], pa.timestamp("us", "America/New_York")),
    "before": pa.array([0, -62135599608 * 10**6], pa.timestamp("us", "Europe/Berlin")),
    "date": pa.array([0, 2932897], pa.date32()),
    "no zone": pa.array([0, 253402318799 * 10**6], pa.timestamp("us")),
    "nested": pa.array([{"a": 0}, {"a": 253402318799 * 10**6}], pa.struct([("a", IN_UTC)])),
    "text": NO_TEXT,
    "key twice": pa.MapArray.from_arrays([0, 1, 3], pa.array(["a", "a", "a"]), pa.array([1, 2, 3])),
}
SHOWN = {
    "after": r"\+10000-01-01T04:59:59", "before": "0000-12-31T23:13:12", "date": r"\+10000-01-01T00:00:00",
    "no zone": r"\+10000-01-01T04:59:59", "nested": "a value of type struct", "text": r"b'\\xff\\xfe'",
    "key twice": "a value of type map",
}  # fmt: skip


@pytest.mark.parametrize("kind", BEYOND)
def test_a_value_that_python_lacks_is_told_with_its_place_and_the_way_on(kind: str) -> None:
    said = (
        r"year 1 to 9999, in UTC; text that is UTF-8; maps without a key twice\) in stream s, column at, for key "
        rf"\('b',\), event time 1970-01-01T00:00:00.000005, found {SHOWN[kind]}.*: .*`on_error: dead`"
    )
    with pytest.raises(ProcessFault, match=said) as met:
        turned(given(r0_1=BEYOND[kind]))
    assert "\n" not in str(met.value)


@pytest.mark.parametrize("kind", BEYOND)
def test_a_row_with_such_a_value_is_rejected_as_it_is_and_the_class_gets_the_others(kind: str) -> None:
    rejected, *others = turned(given(r0_1=BEYOND[kind]), rejects=True)
    assert (rejected["part"].to_pylist(), rejected["r0_0"].to_pylist()) == ([REJECTED], ["b"])
    assert rejected["r0_1"].equals(BEYOND[kind].slice(1).cast(rejected["r0_1"].type))
    assert rejected["why"][0].as_py().startswith("expected a value that Python has")
    assert {key for batch in others for name in ("k0", "o0", "r0_0") for key in batch[name].to_pylist()} == {"a", None}


def test_the_key_itself_may_hold_such_a_value() -> None:
    beyond = pa.array([0, 253402318799 * 10**6], IN_UTC)
    with pytest.raises(ProcessFault, match="in column 1 of the key, for key"):
        turned(given(k0=beyond))
    [rejected, *_] = turned(given(k0=NO_TEXT, r0_0=NO_TEXT), rejects=True)
    assert rejected["r0_0"].cast(pa.binary()).to_pylist() == [b"\xff\xfe"]
    assert "column 1 of the key, for key ('?',)" in rejected["why"][0].as_py()


def test_a_stored_value_is_never_rejected() -> None:
    stored = given(name=NO_TEXT, waits=pa.array([True, False]))
    with pytest.raises(ProcessFault, match="in state, for key"):
        turned(stored, rejects=True)


def test_times_at_the_ends_of_pythons_calendar_are_values_like_others() -> None:
    assert turned(given(r0_1=pa.array([-62135596800 * 10**6, 253402300799999999], IN_UTC)))
