"""docs/reference/json.md lists every key of the objects that commands print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.flow import STATELESS, Flow
from support.lives import lived
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.runs.outcome import Outcome
from floodmark.connectors.relay.backlogs import undelivered
from floodmark.connectors.relay.shipping import Delivered
from floodmark.views.ruleplan import plan_of
from floodmark.views.status.rulestatus import rule_status

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "json.md").read_text()
SHOP = {"postgres": {"connection": "shop", "table": "sold"}, "key": ["k"]}


def listed(heading: str) -> set[str]:
    """The words in code in the tables below a heading, up to the next one."""
    [section] = re.findall(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`(\w+)`", section))


def unlisted(heading: str, keys: Iterable[str]) -> set[str]:
    return set(keys) - listed(heading)


@pytest.fixture
def flow(place: Path) -> Flow:
    return Flow(place, settings={"sinks": [SHOP]})


def test_keys_of_a_run() -> None:
    assert unlisted("`run`", Outcome("counted").facts()) == set()
    assert unlisted("Shipped", Delivered("sold").facts()) == set()


def test_keys_of_a_plan(flow: Flow) -> None:
    flow.write_rule()
    found = plan_of(flow.rule(), flow.root / "rules", flow.home, checks=False).facts()
    assert unlisted("`plan`", found) == set()
    assert unlisted("`plan`", found["streams"][0]) == set()


def test_keys_of_a_status(flow: Flow) -> None:
    flow.write_rule()
    assert unlisted("`status`", rule_status(flow.rule(), flow.home).facts()) == set()
    [target] = undelivered(flow.rule(), flow.place, None)
    assert unlisted("`targets`", target.facts()) == set()


def test_the_state_of_a_stateless_rule_has_an_epoch(place: Path) -> None:
    flow = Flow(place, sql=STATELESS, stream={"lateness": None})
    lived(flow)
    places = ["--rules", str(flow.root / "rules"), "--home", str(flow.home)]
    found = CliRunner().invoke(app, ["state", "counted", "--json", *places])
    assert json.loads(found.stdout) == {"format": 1, "rule": "counted", "epoch": 1, "streams": {}}
