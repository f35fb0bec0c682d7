"""Make the documentation's pictures of Airflow's UI: rules over the example flights, really run. Needs Chromium.

make pictures        writes docs/images/rules.png and docs/images/rule.png, in about ten minutes
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from flights import arrive, portions
from local_airflow import USER, LocalAirflow, ended_by_signals
from playwright.sync_api import expect
from support import chromium
from support.looking import Person

CHECKOUT = Path(__file__).resolve().parents[1]
SCRATCH = CHECKOUT / ".cache" / "pictures"
IMAGES = CHECKOUT / "docs" / "images"
PORTIONS, LAST = 48, 3  # the last ones arrive once Airflow runs the rules
PATIENCE = 900.0  # seconds for Airflow's runs
FLIGHTS: dict[str, Any] = {
    "delta": "${LAKE}/flights",
    "event_time": "date",
    "lateness": "30 minutes",
    "start": {"version": 0},  # commit by commit, so that windows end one after the other
}
RULES: dict[str, dict[str, Any]] = {
    "long_delays": {
        "description": "Flights that leave two hours late, or more.",
        "sql": "SELECT date, origin, destination, delay FROM flights WHERE delay >= 120",
    },
    "routes": {
        "description": "Flights and longest delay of each route so far.",
        "sql": "SELECT origin, destination, count(*) AS flights, max(delay) AS longest FROM flights "
        "GROUP BY origin, destination",
        "unbounded": True,
        "key": ["origin", "destination"],
    },
    "rush_hours": {
        "description": "Times in which an airport has no pause of ten minutes.",
        "sql": "SELECT session_window.start AS start, session_window.end AS stop, origin, count(*) AS flights "
        "FROM flights GROUP BY session_window(date, '10 minutes'), origin",
    },
    "plausible_flights": {
        "description": "All flights; a delay of more than 20 hours stops the rule.",
        "streams": {"flights": FLIGHTS | {"expect": {"plausible": {"check": "delay <= 1200", "on_fail": "fail"}}}},
        "sql": "SELECT date, origin, destination, delay, distance FROM flights",
    },
    "by_distance": {
        "description": "Mean delay of short and long flights, by hour. Started by hand.",
        "sql": "SELECT window.start AS hour, distance > 1000 AS far, avg(delay) AS mean_delay FROM flights "
        "GROUP BY window(date, '1 hour'), distance > 1000",
        "schedule": None,
    },
    "departure_delays": {
        "description": "Mean departure delay by airport and hour.",
        "sql": "SELECT window.start AS hour, origin, count(*) AS flights, avg(delay) AS mean_delay FROM flights "
        "GROUP BY window(date, '1 hour'), origin",
    },
    "delays_by_shift": {
        "description": "Departure delays by six hours, from departure_delays.",
        "streams": {"hours": {"delta": "${LAKE}/departure_delays", "event_time": "hour", "lateness": "2 hours"}},
        "sql": "SELECT window.start AS shift, sum(flights) AS flights, max(mean_delay) AS worst FROM hours "
        "GROUP BY window(hour, '6 hours')",
    },
    "weather_alerts": {
        "description": "Warnings for the airports. Not started yet.",
        "sql": "SELECT date, origin FROM flights WHERE delay > 600",
        "schedule": None,
    },
}
NOT_RUN = "weather_alerts"


def write_rules(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, own in RULES.items():
        key = {"key": own["key"]} if "key" in own else {}
        text = {
            "rule": name,
            "streams": {"flights": FLIGHTS},
            **{part: value for part, value in own.items() if part != "key"},
            "sinks": [{"delta": f"${{LAKE}}/{name}", **key}],
            "epoch": {"max_files": 1},
            "schedule": own.get("schedule", "*/5 * * * *"),
            "timezone": "UTC",
            "spark": {"driver_memory": "2g", "shuffle_partitions": 2},
            "airflow": {"retries": 0, "owner": "data", "tags": ["example"]},
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(text, sort_keys=False, width=120))


def run_rules(airflow: LocalAirflow) -> None:
    """Run the rules as a person would; one of them stops at a flight that its expectation refuses."""
    places = {"FLOODMARK_RULES": airflow.rules, "FLOODMARK_HOME": airflow.home, "LAKE": airflow.lake}
    env = {**os.environ, **{name: str(place) for name, place in places.items()}}
    for name in RULES:
        if name != NOT_RUN:
            command = [str(Path(sys.executable).parent / "floodmark"), "run", name]
            subprocess.run(command, env=env, check=name != "plausible_flights")


def wait_for_runs(airflow: LocalAirflow) -> None:
    """Until Airflow has ended a run of each rule with a schedule."""
    waiting = {name for name, own in RULES.items() if own.get("schedule", "") is not None}
    until = time.monotonic() + PATIENCE
    while waiting and time.monotonic() < until:
        airflow.check_alive()
        found = {name: airflow.find("dags", f"rule.{name}", "dagRuns") or {} for name in waiting}
        waiting -= {name for name, runs in found.items() if any(map(ended, runs.get("dag_runs", [])))}
        time.sleep(1)
    if waiting:
        raise TimeoutError(f"expected a run of each rule to end within {PATIENCE:.0f} s; not ended: {waiting}")


def ended(run: dict[str, Any]) -> bool:
    return run["state"] in ("success", "failed")


def take(airflow: LocalAirflow) -> None:
    with chromium.opened() as browser:
        for scheme, name, height in (("light", "rules", 870), ("dark", "rule", 1150)):
            person = Person(browser, airflow.address, scheme)
            person.page.set_viewport_size({"width": 1400, "height": height})
            person.sign_in(USER, airflow.password)
            if name == "rules":
                expect(person.open_rules().get_by_text("being read")).to_have_count(0)
            else:
                person.open_tab("departure_delays").locator('[data-chart="rows"] canvas').wait_for()
            person.page.screenshot(path=IMAGES / f"{name}.png")
            person.close()


def main() -> None:
    shutil.rmtree(SCRATCH, ignore_errors=True)
    write_rules(SCRATCH / "rules")
    waiting = portions(PORTIONS)
    with (
        ended_by_signals(),
        LocalAirflow(*(SCRATCH / name for name in ("airflow", "rules", "home", "lake"))) as airflow,
    ):
        for portion in waiting[:-LAST]:
            arrive(portion, airflow.lake / "flights")
        run_rules(airflow)
        for portion in waiting[-LAST:]:
            arrive(portion, airflow.lake / "flights")
        airflow.prepare()
        airflow.start()
        airflow.wait_healthy()
        wait_for_runs(airflow)
        take(airflow)


if __name__ == "__main__":
    main()
