"""What executors get of a class: all of it, and nothing that they would have to find themselves."""

from __future__ import annotations

import subprocess
import sys
import sysconfig

import pyarrow as pa
from pyspark import cloudpickle
from support.flow import CLASSES

import floodmark
from floodmark.core.process.context import Kept, Times
from floodmark.spark.turns import Layout, Work, worker

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
    kept, times = Kept({}, {}, False, False), Times(0, 9, 9)
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
