"""REST catalogues of Iceberg that accept a connection and never answer: a retry may come, and nobody waits for ever."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Timer
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.icehouse import NAMESPACE, Icehouse
from support.icerest import serving

from floodmark.connectors.sources.iceberg import rest as limits
from floodmark.connectors.sources.iceberg.options import WrittenIceberg
from floodmark.connectors.sources.iceberg.source import IcebergSource
from floodmark.connectors.targets.iceberg.target import IcebergTarget
from floodmark.core.rules.model import Stream
from floodmark.errors import NotThereYet, RunFailed

SAID = {"connection": "lake", "table": f"{NAMESPACE}.t"}
TOO_LONG = 30.0  # seconds until the system answers in place of the server: that it does not listen


@contextmanager
def silent(listening: socket.socket) -> Iterator[None]:
    """The system accepts connections for a program that takes none, and nobody waits for long."""
    end = Timer(TOO_LONG, listening.close)
    end.start()
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(limits, "SILENCE", 0.2)
            yield
    finally:
        end.cancel()


def source() -> IcebergSource:
    return IcebergSource("t", Stream(kind="iceberg", address="iceberg://lake/shop.t", options=SAID))


def target() -> IcebergTarget:
    return IcebergTarget("iceberg://lake/shop.t", WrittenIceberg.model_validate(SAID))


@pytest.mark.parametrize("more", [{}, {"login": "me", "password": "s3cret"}], ids=["the settings", "a token"])
def test_a_catalogue_that_never_answers(monkeypatch: pytest.MonkeyPatch, more: dict[str, str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening, silent(listening):
        said = {"conn_type": "iceberg", "host": f"http://127.0.0.1:{listening.getsockname()[1]}", **more}
        monkeypatch.setenv("FLOODMARK_CONN_LAKE", json.dumps(said))
        for look in (target().position, source().end):
            with pytest.raises(RunFailed, match=r"it cannot be reached.*Read timed out.*iceberg://lake/shop\.t"):
                look()


@pytest.fixture
def signing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pyiceberg needs of AWS' packages to sign requests; here it leaves them as they are."""
    keys = SimpleNamespace(get_frozen_credentials=lambda: None)
    session = SimpleNamespace(get_credentials=lambda: keys, region_name="eu")
    fakes: dict[str, dict[str, Any]] = {
        "boto3": {"Session": lambda **_: session},
        "botocore": {},
        "botocore.auth": {"SigV4Auth": lambda *_: SimpleNamespace(add_auth=lambda _: None)},
        "botocore.awsrequest": {"AWSRequest": lambda **more: SimpleNamespace(headers=more["headers"])},
    }
    for name, has in fakes.items():
        module = ModuleType(name)
        vars(module).update(has)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize(("more", "asked"), [({}, 1), ({"rest.sigv4.max-retries": "2"}, 3)])
def test_signed_requests_are_repeated_only_as_the_connection_says(
    monkeypatch: pytest.MonkeyPatch, signing: None, more: dict[str, str], asked: int
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=32)) as listening, silent(listening):
        uri = f"http://127.0.0.1:{listening.getsockname()[1]}"
        extra = {"type": "rest", "uri": uri, "rest.sigv4-enabled": "true", **more}
        monkeypatch.setenv("FLOODMARK_CONN_LAKE", json.dumps({"conn_type": "iceberg", "extra": extra}))
        with pytest.raises(RunFailed, match=r"it cannot be reached.*Read timed out"):
            target().position()
        assert len(list(waiting(listening))) == asked


def waiting(listening: socket.socket) -> Iterator[None]:
    """The connections that nobody has taken."""
    listening.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            listening.accept()[0].close()
            yield


def test_a_catalogue_that_answers_no_more(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Icehouse(place / "ice").made()) as rest:
        monkeypatch.setenv("FLOODMARK_CONN_LAKE", rest.connection)
        read, written = source(), target()
        with pytest.raises(NotThereYet):
            read.end()
        assert written.position() is None
        rest.shutdown()  # it listens still
        with silent(rest.socket):
            for look in (written.position, read.end):
                with pytest.raises(RunFailed, match="Read timed out"):
                    look()


def test_settings_of_pyicebergs_own_count_as_before(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Icehouse(place / "ice").made()) as rest:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", "ours")
        said = json.loads(rest.connection)
        monkeypatch.setenv("FLOODMARK_CONN_LAKE", json.dumps(said))
        assert target()._tables.catalog.properties.items() >= {"warehouse": "ours", **said["extra"]}.items()
