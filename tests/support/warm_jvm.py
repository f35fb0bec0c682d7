"""A plugin of pytest: has the tests' Spark session use a JVM that is there already, which has compiled its code.

    FLOODMARK_JVM="PORT SECRET" python -m pytest -p support.warm_jvm TESTS

`python -m support.warm_jvm` starts one, writes both to a line, and ends it once its standard input is closed. Processes
that a test starts have JVMs of their own.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NAMES = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    if fixturedef.argname != "spark":
        return (yield)
    os.environ.update(zip(NAMES, os.environ["FLOODMARK_JVM"].split(), strict=True))
    try:
        return (yield)
    finally:
        for name in NAMES:
            del os.environ[name]


def main() -> None:
    from support.roomy import roomy_session

    with tempfile.TemporaryDirectory() as place:
        session = roomy_session(Path(place))
        gateway = session.sparkContext._gateway
        assert gateway is not None
        session.stop()
    print(gateway.java_parameters.port, gateway.java_parameters.auth_token, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
