"""Where this copy of Floodmark lies: in a checkout, or installed as a package."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parents[3]  # `jobs/` of a checkout, or `site-packages`
JAR_SUMS = Path(__file__).with_name("jars.sha256")


def checkout() -> Path | None:
    """The root of the checkout that holds this code; None if it is an installed package."""
    root = SOURCES.parent
    return root if (root / "scripts" / "setup.sh").is_file() else None


def set_up() -> str:
    """The command that completes what is missing here, for messages."""
    return "make setup" if checkout() else "floodmark jars"


def data_folder() -> Path:
    """Files that belong to the code but are not shipped with it: `.cache` of a checkout, else `share/floodmark` of the
    Python environment, which all its users share."""
    root = checkout()
    return root / ".cache" if root else Path(sys.prefix) / "share" / "floodmark"


def jars_folder() -> Path:
    """The folder of the jars of Delta, Kafka and Avro: FLOODMARK_JARS, or `jars` in the data folder."""
    return Path(os.environ.get("FLOODMARK_JARS") or data_folder() / "jars")


def warehouse() -> Path:
    """A folder for the tables that Spark would manage itself, and never does here; it must be possible to create."""
    return (data_folder() if checkout() else Path(tempfile.gettempdir()) / "floodmark") / "warehouse"


def airflow_home() -> Path:
    """AIRFLOW_HOME, or Airflow's default."""
    return Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()


def place_under_airflow(name: str) -> Path:
    """The default place, under Airflow, of `rules` or `home`; absolute.

    In a checkout rules are in the checkout, and a home is in the current directory; else both are in
    AIRFLOW_HOME/floodmark.
    """
    root = checkout()
    if root is None:
        return airflow_home() / "floodmark" / name
    return root / name if name == "rules" else Path(name).absolute()
