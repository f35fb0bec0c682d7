"""Connections: read from the environment or from Airflow, in both of Airflow's forms, without a word of their text."""

from __future__ import annotations

import json

import pytest
from sqlalchemy.engine import make_url

from floodmark.connectors.ports import connections
from floodmark.connectors.sources.iceberg.opening import bounded
from floodmark.connectors.sources.iceberg.properties import catalogue_of
from floodmark.connectors.sources.kafka.settings import client_settings, spark_settings
from floodmark.core.application.connections import Connection, connection_in, connection_of
from floodmark.errors import Refused

SECRET = "s3cret/+@: "  # as a URI has it: s3cret%2F%2B%40%3A%20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka://h", Connection("c", "kafka", "h")),
        ("postgres://me:s3cret%2F%2B%40%3A%20@h:5432/db", Connection("c", "postgres", "h", 5432, "me", SECRET, "db")),
        ("kafka://a:9092,b:9093", Connection("c", "kafka", "a:9092,b", 9093)),
        ("kafka://h?ssl.ca.location=%2Fca", Connection("c", "kafka", "h", extra={"ssl.ca.location": "/ca"})),
        ('kafka://h?__extra__={"a": 1}', Connection("c", "kafka", "h", extra={"a": 1})),
        ("kafka://[::1]:9092", Connection("c", "kafka", "[::1]", 9092)),
        ("postgres://me:p@::1:5432/db", Connection("c", "postgres", "::1", 5432, "me", "p", "db")),
        ("postgres://me:p@q@h/db", Connection("c", "postgres", "h", None, "me", "p@q", "db")),
        ("kafka://h?sasl.username=me@x.org", Connection("c", "kafka", "h", extra={"sasl.username": "me@x.org"})),
        ("https://h/users/@me", Connection("c", "https", "h", schema="users/@me")),
        ("https://me:p@h/users/%40me", Connection("c", "https", "h", None, "me", "p", "users/@me")),
        ("google-cloud-platform://", Connection("c", "google_cloud_platform")),
        (json.dumps({"conn_type": "kafka", "host": "h", "port": 1, "extra": {"a": "b"}}),
         Connection("c", "kafka", "h", 1, extra={"a": "b"})),
        (json.dumps({"host": "h", "port": "1", "login": "me", "password": SECRET, "extra": '{"a": "b"}'}),
         Connection("c", "", "h", 1, "me", SECRET, extra={"a": "b"})),
    ],
)  # fmt: skip
def test_the_text_of_a_connection(text: str, expected: Connection) -> None:
    assert connection_of("c", text, "X") == expected


@pytest.mark.parametrize(
    "text",
    [
        "s3cret",
        "s3cret:9092",
        "{s3cret",
        '{"host": "h", "s3cret": 1}',
        '{"host": "h", "port": "s3cret"}',
        '{"host": "h", "extra": "s3cret"}',
        '{"host": "h", "extra": ["s3cret"]}',
        "kafka://me:[s3cret]@127.0.0.1:9092",
        "kafka://me:s3cret\u2100@127.0.0.1:9092",
        "kafka://me:s3cret#rest@127.0.0.1:9092",
        "kafka://me:1#s3cret@127.0.0.1:9092",
        "postgres://me:s3cret/rest@db:5432/shop",
        "postgres://me:1/s3cret@db:5432/shop",
        "postgres://me:1@s3cret/rest@db:5432/shop",
        "postgres://me:s3cret?rest@db:5432/shop",
        "postgres://me:1?s3cret@db:5432/shop",
        "postgres://me:s3cret?rest=s3cret@db:5432/shop",
    ],
)
def test_a_text_that_is_none_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(Refused, match=r"connection c: expected a URI .* in FLOODMARK_CONN_C, found ") as fault:
        connection_in("c", {"FLOODMARK_CONN_C": text})
    assert "s3cret" not in str(fault.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("https://h/x#part", "a #: write it as %23"),
        ("https://h:8443/users/@me", "an @ in the path: write it as %40, and"),
        ("https://me@h/users/@me", "an @ in the path: write it as %40, and"),
        ("https://h?@type=x", "an @ in the name of a setting: write it as %40, and"),
        ("kafka://me:[p]@h", "an address that is no URI: write special characters of login and password as %XX"),
    ],
)
def test_a_text_whose_password_may_end_too_early_is_refused_with_the_character_to_replace(
    text: str, found: str
) -> None:
    with pytest.raises(Refused) as fault:
        connection_in("c", {"FLOODMARK_CONN_C": text})
    assert f", found {found}" in str(fault.value)


def test_the_environment_comes_first_and_ours_before_airflows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_KEEPERS", {})
    connections.ask_also("a vault", {"lake": "kafka://kept"}.get)
    with pytest.raises(Refused, match=r"FLOODMARK_CONN_OTHER or AIRFLOW_CONN_OTHER, or in a vault; found none"):
        connections.connection("other")
    hosts = [connections.connection("lake").host]
    for variable in ("AIRFLOW_CONN_LAKE", "FLOODMARK_CONN_LAKE"):
        monkeypatch.setenv(variable, f"kafka://{variable[0]}")
        hosts.append(connections.connection("lake").host)
    assert hosts == ["kept", "A", "F"]


def test_no_secret_is_in_what_python_shows() -> None:
    assert "s3cret" not in repr(Connection("c", login="s3cret", password="s3cret", extra={"a": "s3cret"}))


@pytest.mark.parametrize("password", ["s3cret", "s3/cr#et?x", "s3@cret/x"])
def test_no_password_in_a_catalogue_s_address_is_in_messages(password: str) -> None:
    found = catalogue_of(Connection("c", "iceberg", extra={"uri": f"postgresql://me:{password}@h:1/db"}))
    assert found.without_secrets(f"no server knows {password}.") == "no server knows ***."


def test_the_key_of_a_store_s_account_is_in_no_message() -> None:
    extra = {"uri": "http://h", "adls.connection-string": "AccountName=a;AccountKey=s3cret"}
    assert "s3cret" not in catalogue_of(Connection("c", "iceberg", extra=extra)).without_secrets(f"refused: {extra}")


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_catalogue_in_postgresql_is_not_waited_for_without_an_end(driver: str) -> None:
    uri = f"postgresql+{driver}://me:s3%40cret%2F%3F@/db?host=a:1&host=b:2&connect_timeout=3"
    found, said = make_url(bounded(uri)), make_url(uri)
    assert found.set(query=said.query) == said
    limits = {name: value for name, value in found.query.items() if name not in said.query}
    assert found.query == {**said.query, **limits}, "what it says itself counts"
    assert limits == {
        "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "9", "tcp_user_timeout": "120000"
    }  # fmt: skip
    assert make_url(bounded(f"postgresql+{driver}://h/db")).query["connect_timeout"] == "10"
    assert bounded("sqlite:////catalog.db") == "sqlite:////catalog.db"


def kafka(**more: object) -> Connection:
    return Connection("c", "kafka", "h", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (kafka(), {"bootstrap.servers": "h:9092", "security.protocol": "PLAINTEXT"}),
        (Connection("c", host="[::1]", port=2), {"bootstrap.servers": "[::1]:2"}),
        (Connection("c", host="[::1]:1,b", port=2), {"bootstrap.servers": "[::1]:1,b:2"}),
        (Connection("c", host="a:1,b", port=2), {"bootstrap.servers": "a:1,b:2", "security.protocol": "PLAINTEXT"}),
        (Connection("c", extra={"bootstrap.servers": "x:1", "group.id": "g"}),
         {"bootstrap.servers": "x:1", "security.protocol": "PLAINTEXT"}),
        (kafka(login="me", password="p"), {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
                                           "sasl.username": "me", "sasl.password": "p"}),
        (kafka(extra={"ssl.ca.location": "/ca"}), {"security.protocol": "SSL", "ssl.ca.location": "/ca"}),
        (kafka(login="me", extra={"sasl.mechanisms": "SCRAM-SHA-512", "security.protocol": "SASL_PLAINTEXT"}),
         {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}),
    ],
)  # fmt: skip
def test_the_settings_of_kafkas_client(given: Connection, expected: dict[str, str]) -> None:
    assert client_settings(given).items() >= expected.items()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Connection("c"), "expected a host, or `bootstrap.servers` in its extra, found none"),
        (kafka(extra={"ssl.truststore": "x"}), "expected the settings .* found ssl.truststore"),
        (kafka(extra={"security.protocol": "TLS"}), "expected `security.protocol` to be one of PLAINTEXT, SSL"),
        (kafka(login="me", extra={"sasl.mechanism": "GSSAPI"}), "expected `sasl.mechanism` to be one of PLAIN"),
    ],
)
def test_settings_that_are_not_known_are_refused(given: Connection, problem: str) -> None:
    with pytest.raises(Refused, match=f"connection c: {problem}"):
        client_settings(given)


def test_javas_client_gets_the_same() -> None:
    said = {"bootstrap.servers": "h:1", "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN",
            "sasl.username": "me", "sasl.password": 'a"\\b'}  # fmt: skip
    found = spark_settings(said)
    assert found["kafka.isolation.level"] == "read_committed"
    assert found["kafka.security.protocol"] == "SASL_SSL"
    assert found["kafka.sasl.jaas.config"].endswith('username="me" password="a\\"\\\\b";')
