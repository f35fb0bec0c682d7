"""Events of OpenLineage: sent by real runs of DAGs, and held against the official JSON schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from support.installed import Installed

SCHEMAS = Path(__file__).parents[1] / "services" / "openlineage"
REQUIREMENTS = SCHEMAS / "requirements.txt"
EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
# Airflow's own DAG.test: the tasks run in this process, and every listener of a plugin hears of them.
PROGRAM = """
import sys
from airflow.dag_processing.dagbag import DagBag

dags = DagBag(dag_folder=sys.argv[1]).dags
for name in sys.argv[2:]:
    print(name, dags[name].test().state)
"""

formats = FormatChecker(["uuid"])


@formats.checks("date-time", ValueError)
def is_moment(text: object) -> bool:
    return not isinstance(text, str) or datetime.fromisoformat(text).tzinfo is not None


@formats.checks("uri", ValueError)
def is_address(text: object) -> bool:
    return not isinstance(text, str) or bool(urlsplit(text).scheme)


def sent_by(installed: Installed, *names: str) -> list[dict[str, Any]]:
    """The events of one run of each of these DAGs, in order."""
    file = installed.root / "events.jsonl"
    transport = {"type": "file", "append": True, "log_file_path": str(file)}
    installed.env["AIRFLOW__OPENLINEAGE__TRANSPORT"] = json.dumps(transport)
    installed.env["AIRFLOW__OPENLINEAGE__NAMESPACE"] = "tests"
    installed.call("python", "-c", PROGRAM, str(installed.root / "airflow" / "dags"), *names)
    return [json.loads(line) for line in file.read_text().splitlines()]


def registry() -> Registry[Any]:
    """The schemas in git, by the addresses that they give themselves."""
    files = (json.loads(file.read_text()) for file in sorted(SCHEMAS.glob("*.json")))
    return Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in files)


KNOWN = registry()


def faults(event: Any) -> list[str]:
    """Where an event breaks the schema of events, or a facet breaks the schema that its `_schemaURL` names."""
    found = [*broken(event, EVENT, "")]
    if event.get("schemaURL") != EVENT:
        found.append(f"/schemaURL: {event.get('schemaURL')} is not {EVENT}")
    for at, facet in facets(event, ""):
        address = facet.get("_schemaURL", "none") if isinstance(facet, dict) else "none"
        known = address.partition("#")[0] in KNOWN
        found += broken(facet, address, at) if known else [f"{at}/_schemaURL: {address} is not in {SCHEMAS.name}/"]
    return found


def broken(value: Any, schema: str, at: str) -> Iterator[str]:
    checker = Draft202012Validator({"$ref": schema}, registry=KNOWN, format_checker=formats)
    for fault in checker.iter_errors(value):
        yield "/".join([at, *map(str, fault.absolute_path)]) + f": {fault.message}"


def facets(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    """Every facet of an event, of its run, job and datasets, with its place."""
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        here = f"{at}/{name}"
        if isinstance(part, dict) and str(name).lower().endswith("facets"):  # also inputFacets, outputFacets
            yield from ((f"{here}/{key}", facet) for key, facet in part.items())
        if isinstance(part, dict | list):
            yield from facets(part, here)
