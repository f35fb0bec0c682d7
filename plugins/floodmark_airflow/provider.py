"""What Airflow lists about Floodmark under its providers."""

from __future__ import annotations

from typing import Any

from floodmark import __version__


def get_provider_info() -> dict[str, Any]:
    """The metadata of an Airflow provider, by its JSON Schema."""
    return {
        "package-name": "floodmark",
        "name": "Floodmark",
        "description": "Stateful SQL over Delta tables, run incrementally, with exactly-once results.",
        "versions": [__version__],
    }
