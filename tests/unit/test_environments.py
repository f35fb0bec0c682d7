"""Defaults of a folder of rules, and environments: what a rule is in them, where that stands, and what is refused."""

from __future__ import annotations

import inspect
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from support.audited import Made
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.shared import doctorchecks, options
from floodmark.cli.shared.environment import in_environment
from floodmark.core.rules.environments import environment, home_of, names, read_environment
from floodmark.core.rules.rule import load_rule, load_rules
from floodmark.errors import HomeUnfit, RuleInvalid
from floodmark.reading import read
from floodmark.views.rules.rulefiles import RuleFiles

RULE = """\
rule: delays
streams: {flights: {delta: "${LAKE}/flights"}}
sql: SELECT * FROM flights
sinks: [{delta: "${LAKE}/delays"}]
airflow: {tags: [own]}
"""
DEFAULTS = """\
timezone: Europe/Berlin
qos: 1
airflow:
  owner: ${OWNER:-nobody}
  tags: [of, all]
  retries: 7
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one rule, in a place where two environments are."""
    for name in ("FLOODMARK_ENV", "FLOODMARK_HOME", "FLOODMARK_RULES", "LAKE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    files = {
        "rules/delays.yaml": RULE,
        "env/dev.env": "# for trying\n\nLAKE=lake/dev\nexport OWNER = 'the team'\n",
        "env/prod.env": 'LAKE="lake/prod"\nFLOODMARK_HOME=safe/home\nFLOODMARK_MASTER=local[7]\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "rules"


def write_defaults(rules: Path, text: str = DEFAULTS) -> None:
    (rules / "_defaults.yaml").write_text(text)


def refused(rules: Path, env: dict[str, str]) -> str:
    with pytest.raises(RuleInvalid) as caught:
        load_rule(rules / "delays.yaml", env)
    return str(caught.value).replace(f"{rules.parent}/", "")


def call(*words: str, code: int = 0, **env: str) -> Any:
    found = CliRunner().invoke(app, [*words], env=env)
    assert found.exit_code == code, found.output
    return json.loads(found.stdout) if "--json" in words and found.stdout else found.output


def test_defaults_stand_under_a_rule_key_by_key(rules: Path) -> None:
    write_defaults(rules)
    rule = load_rule(rules / "delays.yaml", {"LAKE": "/lake"})
    assert (rule.timezone, rule.qos, rule.sinks[0].qos) == ("Europe/Berlin", 1, 1)
    assert (rule.airflow.owner, rule.airflow.tags, rule.airflow.retries) == ("nobody", ("own",), 7)
    found, errors = load_rules(rules, {"LAKE": "/lake"})
    assert (list(found), errors) == (["delays"], {}), "the defaults are no rule"


def test_a_rule_that_says_null_has_none_whatever_the_defaults_say(rules: Path) -> None:
    write_defaults(rules, "schedule: '@hourly'\n")
    assert load_rule(rules / "delays.yaml", {"LAKE": "/lake"}).schedule == "@hourly"
    (rules / "delays.yaml").write_text(f"{RULE}schedule: null\n")
    assert load_rule(rules / "delays.yaml", {"LAKE": "/lake"}).schedule is None


def test_the_hash_is_that_of_a_file_which_says_it_all(rules: Path) -> None:
    env = {"LAKE": "/lake"}
    alone = load_rule(rules / "delays.yaml", env).hash
    write_defaults(rules, "qos: 1\n")
    over = load_rule(rules / "delays.yaml", env).hash
    (rules / "_defaults.yaml").unlink()
    (rules / "delays.yaml").write_text(f"{RULE}qos: 1\n")
    assert over == load_rule(rules / "delays.yaml", env).hash != alone


def test_a_mistake_is_told_with_the_file_that_it_stands_in(rules: Path) -> None:
    write_defaults(rules, DEFAULTS.replace("retries: 7", "retris: 7").replace("qos: 1", "qos: 9"))
    (rules / "delays.yaml").write_text(f"{RULE}lates: keep\n")
    assert refused(rules, {"LAKE": "/lake"}).splitlines() == [
        "rules/delays.yaml:6: lates: unknown key 'lates': did you mean 'late'?",
        "rules/_defaults.yaml:2: qos: expected 0 (at most once), 1 (at least once) or 2 (exactly once), found 9",
        "rules/_defaults.yaml:6: airflow.retris: unknown key 'retris': did you mean 'retries'?",
    ]
    write_defaults(rules, DEFAULTS.replace("${OWNER:-nobody}", "${OWNER}"))
    assert "rules/_defaults.yaml:4: airflow.owner: the variable OWNER is not set" in refused(rules, {"LAKE": "/lake"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("qos: 1\nsinks: []\n", "rules/_defaults.yaml:2: sinks: belongs in each rule"),
        ("- qos\n", "rules/_defaults.yaml:1: expected settings of all rules"),
        ("qos: [\n", "rules/_defaults.yaml:2: column 1: "),
    ],
)
def test_defaults_that_cannot_be_used_are_refused(rules: Path, text: str, words: str) -> None:
    write_defaults(rules, text)
    assert refused(rules, {"LAKE": "/lake"}).startswith(words)


def test_two_files_of_defaults_are_refused(rules: Path) -> None:
    write_defaults(rules)
    (rules / "_defaults.yml").write_text("qos: 1\n")
    assert "expected one file of defaults, found _defaults.yaml, too" in refused(rules, {"LAKE": "/lake"})


def test_an_environment_says_what_variables_are(rules: Path) -> None:
    write_defaults(rules)
    env = {"LAKE": "/of the process", "FLOODMARK_ENV": "dev"}
    rule = load_rule(rules / "delays.yaml", env)
    assert (rule.sinks[0].address, rule.airflow.owner) == ("lake/dev/delays", "the team")
    assert load_rule(rules / "delays.yaml", {**env, "FLOODMARK_ENV": ""}).sinks[0].address == "/of the process/delays"
    assert names(rules) == ["dev", "prod"]
    with pytest.raises(RuleInvalid, match="is not in FLOODMARK_VARIABLES"):
        load_rule(rules / "delays.yaml", {**env, "FLOODMARK_VARIABLES": "OWNER"})


def test_each_environment_has_a_home_of_its_own(rules: Path) -> None:
    dev, default = {"FLOODMARK_ENV": "dev"}, Path("home")
    assert home_of(rules, {}, default) == Path("home")
    assert home_of(rules, dev, default) == Path("home/env-dev")
    assert home_of(rules, {**dev, "FLOODMARK_HOME": "/data"}, default) == Path("/data/env-dev")
    assert home_of(rules, {**dev, "FLOODMARK_HOME": "/data/env-dev"}, default) == Path("/data/env-dev"), (
        "once is enough"
    )
    assert home_of(rules, {"FLOODMARK_ENV": "prod", "FLOODMARK_HOME": "/data"}, default) == Path("safe/home")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("LAKE\n", "x.env:1: expected NAME=value"),
        ("# a\nA=1\nA=2\n", "x.env:3: expected each variable once; A is already in line 2"),
        (
            "FLOODMARK_VARIABLES=A\n",
            "x.env:1: expected of Floodmark's own settings only FLOODMARK_HOME and ",
        ),
        ("1A=2\n", "x.env:1: expected NAME=value"),
        ("A=b#c\nLAKE=lake/prod  # the good one\n", "x.env:2: expected quotes around a value"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.env"
    path.write_text(text)
    with pytest.raises(RuleInvalid) as caught:
        read_environment(path)
    assert words in str(caught.value)


def test_quotes_say_that_a_hash_sign_belongs_to_the_value(tmp_path: Path) -> None:
    path = tmp_path / "x.env"
    path.write_text("A='one # two'\nB=three#four\n")
    assert read_environment(path).variables == {"A": "one # two", "B": "three#four"}


def test_an_environment_without_a_file_or_name_is_refused(rules: Path) -> None:
    with pytest.raises(
        RuleInvalid,
        match=r"env/prd.env: expected the file of environment prd, found none: .* existing one .dev",
    ):
        environment(rules, {"FLOODMARK_ENV": "prd"})
    with pytest.raises(RuleInvalid, match=r"found '../env/dev'"):
        environment(rules, {"FLOODMARK_ENV": "../env/dev"})


def test_who_keeps_rules_reads_them_anew_where_defaults_or_environment_change(rules: Path) -> None:
    files = RuleFiles(rules, {"FLOODMARK_ENV": "dev"})
    first = files.catalog().rules["delays"]
    assert files.catalog().rules["delays"] is first
    write_defaults(rules)
    second = files.catalog().rules["delays"]
    assert second.qos == 1
    (rules.parent / "env" / "dev.env").write_text("LAKE=elsewhere\n")
    assert files.catalog().rules["delays"].sinks[0].address == "elsewhere/delays"


def test_plan_says_where_each_value_comes_from(rules: Path) -> None:
    write_defaults(rules)
    plan = call("plan", "delays", "--json", "--env", "dev")
    found = {one["name"]: (one["value"], one["origin"], one["place"]) for one in plan["settings"]}
    assert found["timezone"] == ("Europe/Berlin", "defaults", "_defaults.yaml:1")
    assert found["airflow.tags"] == (["own"], "file", "delays.yaml:5")
    assert found["airflow.timeout"] == ("12 hours", "default", "built-in")
    assert found["airflow.owner"] == ("the team", "environment", "_defaults.yaml:4; OWNER from env/dev.env:4")
    assert found["sinks.0.delta"] == ("lake/dev/delays", "environment", "delays.yaml:4; LAKE from env/dev.env:3")
    assert plan["environment"] == {"LAKE": "from env/dev.env:3", "OWNER": "from env/dev.env:4"}
    assert plan["not_compared"] == ["no environment: the rule cannot be read there, so its sinks were not compared"]
    assert "_defaults.yaml:1" in call("plan", "delays", "--env", "prod")
    plan = call("plan", "delays", "--json", LAKE="lake")
    assert plan["environment"] == {"LAKE": "from the environment", "OWNER": "its default"}


def test_doctor_knows_the_variables_of_the_environment_s_file(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_ENV", "dev")
    for listed, verdict in (("LAKE, OWNER", "ok"), ("LAKE, LAKES", "warning")):
        monkeypatch.setenv("FLOODMARK_VARIABLES", listed)
        looks = dict(doctorchecks._checks(rules, rules.parent / "home", []))
        assert {one.name: one.verdict for one in looks["settings"]()}["FLOODMARK_VARIABLES"] == verdict


def test_defaults_behind_a_link_that_leads_nowhere_are_an_error(rules: Path) -> None:
    (rules / "_defaults.yaml").symlink_to(rules / "gone.yaml")
    assert "_defaults.yaml: cannot be read: No such file" in refused(rules, {"LAKE": "/lake"})


def test_plan_refuses_a_sink_that_another_environment_writes(rules: Path) -> None:
    (rules.parent / "env" / "dev.env").write_text("LAKE=./lake/../lake/prod\n")
    said = call("plan", "delays", "--env", "dev", code=2)
    assert "found that rule delays of environment prod writes to it, too" in said
    assert "rules without an environment writes to it" in call(
        "plan", "delays", "--env", "dev", LAKE="lake/prod", code=2
    )


def test_plan_lets_two_environments_name_one_connection_or_class(rules: Path) -> None:
    """Each environment has a server of its own under that name."""
    sinks = """sinks:
- delta: ${LAKE}/delays
- postgres: {connection: shop, table: totals}
- kafka: {connection: broker, topic: totals}
- python: {class: shop:Shop, settings: {url: "https://host/${LAKE}"}}
  qos: 1
"""
    (rules / "shop.py").write_text("class Shop:\n    def apply(self, batch, token):\n        pass\n")
    (rules / "delays.yaml").write_text(RULE.partition("sinks:")[0] + sinks)
    assert "postgres" in call("plan", "delays", "--env", "dev")
    (rules / "delays.yaml").write_text(RULE.partition("sinks:")[0] + sinks + "- files: {path: lake/files}\n")
    said = call("plan", "delays", "--env", "dev", code=2)
    assert "/lake/files of rule delays: expected an address that no other environment uses" in said


def test_a_command_works_in_the_home_of_its_environment(rules: Path) -> None:
    """Unless the command line names one; and afterwards the process is as it was."""

    def home(*words: str, **env: str) -> str:
        said = str(call("run", "delays", *words, code=2, **env))
        assert " cannot persist: " in said, "it lies in a temporary directory"
        return said.partition("the home ")[2].partition(" cannot")[0]

    here = rules.parent
    assert f"{here}/home/env-dev" == home("--env", "dev")
    assert f"{here}/home/env-dev" == home(FLOODMARK_ENV="dev")
    assert f"{here}/safe/home" == home("--env", "prod")
    assert f"{here}/mine" == home("--env", "dev", "--home", str(here / "mine"))
    assert home(LAKE="lake") == f"{here}/home"
    assert "FLOODMARK_ENV" not in os.environ


@pytest.mark.parametrize(
    ("home", "why"),
    [
        ("s3a://lake/home", "found a URI: ledgers and state need a path of this machine's file system"),
        ("file:///data/home", "found a URI"),
        ("~/fm", "found a path that begins with ~, which is not expanded"),
        ("$HOME/fm", "found a path that begins with $, which is not expanded"),
    ],
)
def test_a_home_that_would_be_a_folder_of_the_working_directory_is_refused(rules: Path, home: str, why: str) -> None:
    (rules.parent / "env" / "dev.env").write_text(f"LAKE=lake\nFLOODMARK_HOME={home}\n")
    with pytest.raises(RuleInvalid) as caught:
        home_of(rules, {"FLOODMARK_ENV": "dev"}, Path("home"))
    assert f"env/dev.env:2: expected a folder as FLOODMARK_HOME, {why}" in str(caught.value)
    (rules.parent / "env" / "plain.env").write_text("LAKE=lake\n")
    for env in ({}, {"FLOODMARK_ENV": "plain"}):
        with pytest.raises(HomeUnfit, match=re.escape(why)):
            home_of(rules, {"FLOODMARK_HOME": home, **env}, Path("home"))
    assert why in call("run", "delays", "--home", home, LAKE="lake", code=2)
    assert why in call("status", "delays", LAKE="lake", FLOODMARK_HOME=home, code=2)
    with pytest.raises(HomeUnfit, match=re.escape(why)):
        read("delays", home)
    assert sorted(one.name for one in rules.parent.iterdir()) == ["env", "rules"]


def test_a_home_that_is_not_used_is_not_refused(rules: Path) -> None:
    unfit = {"FLOODMARK_HOME": "~/fm"}
    assert home_of(rules, {"FLOODMARK_ENV": "prod", **unfit}, Path("home")) == Path("safe/home")
    mine = str(rules.parent / "mine")
    assert f"the home {mine} cannot persist" in call("run", "delays", "--env", "dev", "--home", mine, code=2, **unfit)
    assert "/flights" in call("preview", "delays", "--env", "dev", code=1, **unfit), "it has no home, only input"


def test_a_place_in_an_environment_s_file_is_not_empty(rules: Path) -> None:
    (rules.parent / "env" / "dev.env").write_text("FLOODMARK_HOME=\nFLOODMARK_MASTER=''\n")
    with pytest.raises(RuleInvalid) as caught:
        read_environment(rules.parent / "env" / "dev.env")
    assert "dev.env:1: expected a folder as FLOODMARK_HOME, found nothing" in str(caught.value)
    assert "dev.env:2: expected a Spark master as FLOODMARK_MASTER, found nothing" in str(caught.value)


@pytest.mark.parametrize("home", ["/data/home", "home", "/data/~", "/data/s3a:/home", "data/$x"])
def test_any_other_path_can_be_a_home(rules: Path, home: str) -> None:
    assert home_of(rules, {"FLOODMARK_HOME": home}, Path("home")) == Path(home)


def test_an_audit_is_one_of_the_environment_s_ledger(rules: Path) -> None:
    """Where the rule has a ledger in the home of no environment, too, that one is not audited."""
    here = rules.parent
    Made(here, 1)
    assert "r: PROVEN" in call("audit", "r")
    assert f"expected a ledger at {here}/home/env-dev/r/ledger" in call("audit", "r", "--env", "dev", code=2)
    assert f"expected a ledger at {here}/safe/home/r/ledger" in call("audit", "r", FLOODMARK_ENV="prod", code=2)
    assert "r: PROVEN" in call("audit", "r", "--home", str(here / "home"), FLOODMARK_ENV="prod")


def test_every_command_with_a_home_can_be_in_an_environment() -> None:
    """Without the option it would work in the home of no environment, although FLOODMARK_ENV names one."""
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    commands = {
        (group.info.help, one.name): one.callback for group in groups if group for one in group.registered_commands
    }
    takes = {name: inspect.signature(command).parameters for name, command in commands.items() if command}
    homes = {name for name, options in takes.items() if "home" in options}
    assert len(homes) > 20
    assert [name for name in homes if "environment" not in takes[name]] == []


@pytest.mark.parametrize(("port", "master"), [(None, "local[7]"), ("25333", "spark://told:7077")])
def test_where_spark_runs_already_the_environment_does_not_say_where(
    rules: Path, port: str | None, master: str
) -> None:
    small, seen = typer.Typer(), list[str]()

    def command(rules: options.RulesDir = options.RULES, master: options.Master = "local[*]") -> None:
        seen.append(master)

    small.command()(in_environment(command))
    told = {"FLOODMARK_MASTER": "spark://told:7077", "PYSPARK_GATEWAY_PORT": port}
    assert CliRunner().invoke(small, ["--env", "prod"], env=told).exit_code == 0
    assert seen == [master]
