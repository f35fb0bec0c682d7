"""The windows by Flink's SQL, from Parquet into Parquet. Runs in an environment of its own, which has PyFlink.

As a stream, it takes a checkpoint every 10 s, so its files have each row exactly once. Flink reads files in no order of
time: the watermark waits for an hour, longer than the events last, so no row is late.
"""

from __future__ import annotations

import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

FILES = "'connector' = 'filesystem', 'format' = 'parquet', 'parquet.utc-timezone' = 'true', 'path' = 'file://{}'"
EVENTS = """
CREATE TABLE events (ts TIMESTAMP(3), k STRING, v DOUBLE, WATERMARK FOR ts AS ts - INTERVAL '1' HOUR) WITH ({})"""
SINK = "CREATE TABLE sink (`minute` TIMESTAMP(3), k STRING, n BIGINT, most DOUBLE, mean DOUBLE) WITH ({})"
INSERT = """
INSERT INTO sink SELECT window_start, k, count(*), max(v), avg(v)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, k"""
SETTINGS = {"parallelism.default": "2", "table.local-time-zone": "UTC", "taskmanager.memory.process.size": "3g"}
STREAM = {"execution.checkpointing.interval": "10 s", "execution.checkpointing.mode": "EXACTLY_ONCE"}


def main(warm: str, table: str, out: str, mode: str, repeats: int, jars: str) -> None:
    folded(warm, f"{out}-warm", mode, jars)
    for i in range(repeats):
        begun = time.monotonic()
        folded(table, f"{out}-{i}", mode, jars)
        print("seconds", time.monotonic() - begun, flush=True)


def folded(table: str, out: str, mode: str, jars: str) -> None:
    streams = mode == "stream"
    made = EnvironmentSettings.in_streaming_mode() if streams else EnvironmentSettings.in_batch_mode()
    env = TableEnvironment.create(made)
    places = {
        "pipeline.jars": jars,
        **({"execution.checkpointing.dir": f"file://{out}-checkpoints"} if streams else {}),
    }
    for name, value in {**SETTINGS, **(STREAM if streams else {}), **places}.items():
        env.get_config().set(name, value)
    env.execute_sql(EVENTS.format(FILES.format(table)))
    env.execute_sql(SINK.format(FILES.format(out)))
    env.execute_sql(INSERT).wait()


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]), sys.argv[6])
