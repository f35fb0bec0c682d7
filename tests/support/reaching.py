"""A plugin of pytest: records which test reaches which line of the engine, and how long each takes.

    FLOODMARK_REACH=FILE python -m pytest -p support.reaching TESTS

`FILE` gets coverage.py's data, with the test as each line's context; `FILE.seconds` the seconds of each test. Spark's
callbacks run in threads of this process, and count for the test that waits for them. What a child process runs is not
seen: tests that kill processes are named in the list of faults.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

ROOT = Path(__file__).resolve().parents[2]


class Reaching:
    def __init__(self, data: str):
        self._data = data
        self._seconds: dict[str, float] = defaultdict(float)
        self._coverage = Coverage(data_file=data, source=[str(ROOT / "jobs")], config_file=False)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":  # what is set up is shared, and is no measure of one test
            self._seconds[report.nodeid] += report.duration

    def pytest_unconfigure(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        Path(f"{self._data}.seconds").write_text(json.dumps(self._seconds))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Reaching(os.environ["FLOODMARK_REACH"]))
