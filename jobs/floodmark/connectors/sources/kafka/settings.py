"""Kafka's settings from a connection: those of librdkafka, for questions, and those of Java's client, for Spark. Pure.

A connection's `extra` has settings by librdkafka's names, as Airflow's Kafka provider has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from floodmark.core.application.connections import Connection
from floodmark.errors import Refused

SERVERS, PROTOCOL, MECHANISM = "bootstrap.servers", "security.protocol", "sasl.mechanism"
USER, PASSWORD = "sasl.username", "sasl.password"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule",
            "SCRAM-SHA-512": "scram.ScramLoginModule"}  # fmt: skip
CA, CERTIFICATE, KEY, KEY_PASSWORD = (
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
)  # fmt: skip
_KNOWN = (SERVERS, PROTOCOL, MECHANISM, "sasl.mechanisms", USER, PASSWORD, CA, CERTIFICATE, KEY, KEY_PASSWORD)
# Settings for consumers and producers in a connection that others use, too; they have no effect here.
_OTHERS = ("group.id", "auto.offset.reset", "enable.auto.commit", "client.id", "session.timeout.ms", "acks")


def client_settings(connection: Connection) -> dict[str, str]:
    """librdkafka's settings. Raises Refused for a connection that names no server, or has settings that are not known
    here: to leave one out could open what is to be closed."""
    said = {key: str(value) for key, value in connection.extra.items() if key not in _OTHERS}
    unknown = sorted(set(said) - set(_KNOWN))
    if unknown:
        raise Refused(_about(connection, f"expected the settings {', '.join(_KNOWN)}, found {', '.join(unknown)}"))
    servers = said.pop(SERVERS, "") or _servers(connection)
    if not servers:
        raise Refused(_about(connection, f"expected a host, or `{SERVERS}` in its extra, found none"))
    mechanism = said.pop("sasl.mechanisms", None) or said.pop(MECHANISM, None)
    found = {SERVERS: servers, **({MECHANISM: mechanism} if mechanism else {}), **said}
    if connection.login:
        found = {USER: connection.login, PASSWORD: connection.password, MECHANISM: "PLAIN", **found}
    found.setdefault(PROTOCOL, _protocol(found))
    _check(connection, found)
    return found


def _servers(connection: Connection) -> str:
    port = connection.port or 9092
    hosts = (one for one in connection.host.split(",") if one)
    return ",".join(one if ":" in one and not one.endswith("]") else f"{one}:{port}" for one in hosts)


def _protocol(found: Mapping[str, str]) -> str:
    """Encrypted if there is a password or a certificate: the connection has to ask for a password in the clear."""
    if USER in found:
        return "SASL_SSL"
    return "SSL" if any(key.startswith("ssl.") for key in found) else "PLAINTEXT"


def _check(connection: Connection, found: Mapping[str, str]) -> None:
    if found[PROTOCOL].upper() not in _PROTOCOLS:
        raise Refused(_about(connection, f"expected `{PROTOCOL}` to be one of {', '.join(_PROTOCOLS)}"))
    if found[PROTOCOL].upper().startswith("SASL") and found.get(MECHANISM, "PLAIN").upper() not in _MODULES:
        raise Refused(_about(connection, f"expected `{MECHANISM}` to be one of {', '.join(_MODULES)}"))


def spark_settings(found: Mapping[str, str]) -> dict[str, str]:
    """The same for Java's client, as options of Spark's reader."""
    java = {SERVERS: found[SERVERS], PROTOCOL: found[PROTOCOL].upper(), "isolation.level": "read_committed"}
    if java[PROTOCOL].startswith("SASL"):
        mechanism = found.get(MECHANISM, "PLAIN").upper()
        login = f'username="{_quoted(found.get(USER, ""))}" password="{_quoted(found.get(PASSWORD, ""))}"'
        module = f"org.apache.kafka.common.security.{_MODULES[mechanism]}"
        java |= {MECHANISM: mechanism, "sasl.jaas.config": f"{module} required {login};"}
    if CA in found:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": Path(found[CA]).read_text()}
    if CERTIFICATE in found:
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": Path(found[CERTIFICATE]).read_text(),
            "ssl.keystore.key": Path(found[KEY]).read_text(),
        }
    if KEY_PASSWORD in found:
        java["ssl.key.password"] = found[KEY_PASSWORD]
    return {f"kafka.{key}": value for key, value in java.items()}


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _about(connection: Connection, problem: str) -> str:
    return f"connection {connection.name}: {problem}"
