"""A Prometheus and a statsd_exporter as processes of this machine, with the files of docs/guide/monitoring."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from floodmark.proving.play.processes import started, wait_until
from support.cluster import free_ports
from support.monitored import ALERTS, MAPPING

LIMIT = 60.0
CLIENT = "statsd==4.0.1"  # by which Airflow sends metrics; the other tests do not need it
PACKAGES = {
    "prometheus": "sudo apt-get install prometheus",
    "promtool": "sudo apt-get install prometheus",
    "statsd_exporter": "go install github.com/prometheus/statsd_exporter@v0.28.0",
}


def program(name: str) -> str:
    """Its path. Raises FileNotFoundError that says what to install."""
    found = shutil.which(name) or shutil.which(name, path=str(Path.home() / "go" / "bin"))
    if found is None:
        raise FileNotFoundError(f"expected {name} on PATH: {PACKAGES[name]}")
    return found


def client(folder: Path) -> Path:
    """Put StatsD's client into a folder, for PYTHONPATH."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), CLIENT]
    subprocess.run(command, check=True)
    return folder


@dataclass(frozen=True)
class Prometheus:
    """`url`: of its API. `settings`: for an Airflow that sends its metrics to it."""

    url: str
    settings: dict[str, str]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query; NaN is no sample."""
        found = self._get("query", query=expression)["result"]
        return [one for one in found if one["value"][1] != "NaN"]

    def value(self, expression: str) -> float | None:
        """Of the one sample; None: there is none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[tuple[str, str]]:
        """The name and the rule of each alert that fires."""
        alerts = self._get("alerts")["alerts"]
        return {
            (one["labels"]["alertname"], one["labels"].get("rule", "")) for one in alerts if one["state"] == "firing"
        }

    def _get(self, what: str, **asked: str) -> dict[str, Any]:
        with urlopen(f"{self.url}/api/v1/{what}?{urlencode(asked)}", timeout=10) as answer:  # noqa: S310 - on this machine
            found: dict[str, Any] = json.load(answer)["data"]
        return found

    def ready(self) -> bool:
        """Whether it scrapes the exporter."""
        try:
            return self.value("up") == 1
        except OSError:
            return False


def configuration(place: Path, exporter: str) -> Path:
    """A file of settings for a Prometheus that looks each second."""
    file = place / "prometheus.yml"
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    scraped = [{"job_name": "airflow", "static_configs": [{"targets": [exporter]}]}]
    file.write_text(yaml.safe_dump({"global": every, "rule_files": [str(ALERTS)], "scrape_configs": scraped}))
    return file


@contextmanager
def watching(place: Path) -> Iterator[Prometheus]:
    """Both, until the end of the block."""
    door, page, api = free_ports(3)
    addresses = [f"127.0.0.1:{port}" for port in (door, page, api)]
    export = [
        program("statsd_exporter"),
        f"--statsd.mapping-config={MAPPING}",
        f"--statsd.listen-udp={addresses[0]}",
        "--statsd.listen-tcp=",
        f"--web.listen-address={addresses[1]}",
    ]
    watch = [
        program("prometheus"),
        f"--config.file={configuration(place, addresses[1])}",
        f"--storage.tsdb.path={place / 'prometheus'}",
        f"--web.listen-address={addresses[2]}",
    ]
    settings = {
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__STATSD_PORT": str(door),
    }
    found = Prometheus(f"http://{addresses[2]}", settings)
    with started(export, {}, place / "exporter.log"), started(watch, {}, place / "prometheus.log") as process:
        assert wait_until(found.ready, process, LIMIT), (place / "prometheus.log").read_text()
        yield found
