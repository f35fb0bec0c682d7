"""The files for monitoring in docs/guide/monitoring, read as their programs read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

FOLDER = Path(__file__).parents[2] / "docs" / "guide" / "monitoring"
DASHBOARD, MAPPING, ALERTS = (FOLDER / name for name in ("grafana-dashboard.json", "statsd-mapping.yml", "alerts.yml"))
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$rule": ".*"}  # as Grafana fills them in
HISTOGRAM = ("_bucket", "_count", "_sum")

register_default_plugins()


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Each panel's title and one of its queries, with Grafana's variables filled in."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            yield panel["title"], text


def alerts() -> dict[str, str]:
    """The expression of each alert."""
    rules = (rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"])
    return {rule["alert"]: rule["expr"] for rule in rules}


def unknown_to_grafana(found: dict[str, Any]) -> list[str]:
    """Where a dashboard has something that Grafana's own types do not keep as it is."""
    kept = json.loads(JSONEncoder().encode(Dashboard.from_json(found)))
    return list(_lost(found, kept, ""))


def _lost(ours: Any, kept: Any, at: str) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(kept, dict):
        for name, value in ours.items():
            yield from _lost(value, kept.get(name, _lost), f"{at}/{name}")
    elif isinstance(ours, list) and isinstance(kept, list) and len(ours) == len(kept):
        for number, (one, other) in enumerate(zip(ours, kept, strict=True)):
            yield from _lost(one, other, f"{at}/{number}")
    elif ours != kept:
        yield at


@cache
def mappings() -> list[dict[str, Any]]:
    """Of statsd_exporter, in the order in which it tries them."""
    found: list[dict[str, Any]] = yaml.safe_load(MAPPING.read_text())["mappings"]
    return found


def exported(name: str) -> tuple[set[str], set[str]] | None:
    """What statsd_exporter makes of a metric of StatsD: the names of the series, and their labels. None: dropped."""
    for mapping in mappings():
        is_regex = mapping.get("match_type") == "regex"
        pattern = mapping["match"] if is_regex else re.escape(mapping["match"]).replace(r"\*", "([^.]+)")
        match = re.fullmatch(pattern, name)
        if match is not None:
            if mapping.get("action") == "drop":
                return None
            made = match.expand(re.sub(r"\$\{?(\d)\}?", r"\\\1", mapping["name"]))
            ends = HISTOGRAM if mapping.get("observer_type") == "histogram" else ("",)
            return {made + end for end in ends}, {*mapping["labels"], *(("le",) if len(ends) > 1 else ())}
    return {name.replace(".", "_")}, set()


def used(query: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric of a query, with the labels that the query selects by. Raises ValueError if it does not parse."""
    seen: list[Any] = []
    promql_parser.walk(promql_parser.parse(query), seen.append)
    for part in seen:
        if isinstance(part, promql_parser.VectorSelector):
            yield part.name, {matcher.name for matcher in part.matchers.matchers}


def grouped(query: str) -> set[str]:
    """The labels by which a query sums up or matches."""
    return {word for words in re.findall(r"\b(?:by|on) \(([^)]*)\)", query) for word in re.findall(r"\w+", words)}
