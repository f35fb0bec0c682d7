"""The services of a deployment, started as processes: Airflow's by the scripts that start them for people."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
