"""Start the embedded Airflow and keep it running: print its UI's address and the login, and add real flights.

It runs the rules of FLOODMARK_RULES (default: rules/), with their home in FLOODMARK_HOME (./home) and the lake in LAKE
(./lake), all of which stay when it stops. Ctrl-C stops everything that it started.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from flights import PAUSE, feed
from local_airflow import USER, Failed, LocalAirflow, ended_by_signals, free_ports, is_free

CHECKOUT = Path(__file__).resolve().parents[1]
API_PORT = 8080


def folder_of(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or CHECKOUT / default).absolute()


def welcome(airflow: LocalAirflow) -> None:
    print(
        f"""
  Airflow     {airflow.address}
  login       {USER} / {airflow.password}
  rules       {airflow.rules}
  lake        {airflow.lake}
  home        {airflow.home}
  logs        {airflow.folder}

Each rule is the DAG rule.NAME. Ctrl-C stops everything; lake and home stay.
""",
        flush=True,
    )


def stay(airflow: LocalAirflow) -> None:
    """Add a portion of flights every minute while there are some; then only watch.

    If LAKE is set, the lake is the user's: only rules write to it.
    """
    coming = iter(()) if os.environ.get("LAKE") else feed(airflow.lake / "flights")
    while True:
        if text := next(coming, None):
            print(text, flush=True)
        until = time.monotonic() + PAUSE
        while time.monotonic() < until:
            airflow.check_alive()
            time.sleep(1)


def run() -> None:
    folders = (folder_of("FLOODMARK_RULES", "rules"), folder_of("FLOODMARK_HOME", "home"), folder_of("LAKE", "lake"))
    port = API_PORT if is_free(API_PORT) else free_ports(1)[0]
    with LocalAirflow(CHECKOUT / ".airflow", *folders, port) as airflow:
        print("starting Airflow …", flush=True)
        airflow.prepare()
        airflow.start()
        airflow.wait_healthy()
        welcome(airflow)
        stay(airflow)


def main() -> int:
    try:
        with ended_by_signals():
            run()
    except Failed as fault:
        print(f"up: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nup: stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
