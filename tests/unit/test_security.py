"""What a rule file cannot do: leave its place, run a program, read what no stream names, hold or show a secret.

docs/security.md says where the boundary of trust lies; these are its sentences, tried.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from deltalake import DeltaTable
from support.byhand import begun
from support.flow import SCHEMA, Flow, event
from typer.testing import CliRunner

from floodmark.audit import certificate
from floodmark.audit.content.content import until_unreadable
from floodmark.audit.evidence import Finding
from floodmark.audit.logreader import Unreadable, read_errors
from floodmark.cli.app import app
from floodmark.connectors.preflight import check_settings, check_without_jvm
from floodmark.core.lifecycle.replays import wanted
from floodmark.core.process.stable import unstable
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit, Replay
from floodmark.core.rules.rule import Rule, load_rule, load_rules
from floodmark.core.sql import analyse, analyse_expression
from floodmark.core.sql.words.functions import is_call
from floodmark.core.sql.words.lexis import words_of
from floodmark.core.text.files import MAX_CHARACTERS
from floodmark.core.text.secrets import ALLOWED, has_credentials, secret_setting, secret_variable, secrets_in
from floodmark.core.text.yamltree import MAX_BYTES, MAX_DEPTH, MAX_VALUES, YamlRefused, read_yaml
from floodmark.errors import NotOwned, Refused, RuleInvalid, RunFailed, SqlRefused, message
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.proving.play.worker import _fault
from floodmark.redaction import gives_password, redacted
from floodmark.spark.read.shape import micros
from floodmark.spark.rule.analysis import analyse as analyse_rule
from floodmark.spark.write.replacing import Span
from floodmark.views.homes import home_status
from floodmark.views.status.glance import glance

MARK = "hunter2-mark"
Load = Callable[..., Rule]


def text(**changed: Any) -> dict[str, Any]:
    return {
        "rule": "plain",
        "streams": {"events": {"delta": "/lake/events", "event_time": "at", "lateness": "1 minute"}},
        "sql": "SELECT k, v FROM events",
        "sinks": [{"delta": "/lake/out"}],
        **changed,
    }


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(env: dict[str, str] | None = None, file: str = "plain.yaml", **changed: Any) -> Rule:
        path = tmp_path / "rules" / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(text(**changed)))
        return load_rule(path, env or {})

    return loaded


def refusal(load: Load, **given: Any) -> str:
    with pytest.raises(RuleInvalid) as caught:
        load(**given)
    assert MARK not in str(caught.value)
    return str(caught.value)


# ------------------------------------------------------------------------------------------- names become paths

NAMES = [
    "../up", "..", ".", "a/b", "/etc", "a\\b", "a b", "", "Upper", "_a", "1a", "a-b", "a.b", "a\n", "a\x00", "\uff41",
    "\u0430bc",
    "e\u0301t\u00e9", "\ufb01n", "a\u200b", "x" * 64, "con:", "~", "$HOME", "${HOME}", "*", "a%2e",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_no_name_of_a_rule_leads_anywhere_else(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(yaml.safe_dump(text(rule=name)))
    with pytest.raises(RuleInvalid, match=r"rule: expected|character|rule: the variable"):
        load_rule(path, {})


@pytest.mark.parametrize("name", ["../up", "/etc", "a/b", ".", "..", "", "\uff41", "a\n"], ids=ascii)
def test_nor_does_one_from_the_command_line(place: Path, name: str) -> None:
    with pytest.raises(Refused, match="expected the name of a rule"):
        Home(place, name)
    found = CliRunner().invoke(app, ["audit", "--home", str(place), "--", name])
    assert found.exit_code == 2, found.output
    assert "expected the name of a rule" in found.output


@pytest.mark.parametrize("name", ["a b", "a;b", "a`b", "a-b", "a.b", "ä", "a'", "${X}", "a/../b", ""], ids=ascii)
@pytest.mark.parametrize("place", ["stream", "lookup", "event_time", "distinct", "process key"])
def test_names_that_become_sql_are_plain(load: Load, place: str, name: str) -> None:
    stream = {"delta": "/lake/events", "event_time": "at", "lateness": "1 minute"}
    broken: dict[str, dict[str, Any]] = {
        "stream": {"streams": {name: stream}},
        "lookup": {"lookups": {name: {"delta": "/lake/names"}}},
        "event_time": {"streams": {"events": {**stream, "event_time": name}}},
        "distinct": {"streams": {"events": {**stream, "distinct": {"key": [name], "within": "1 hour"}}}},
        "process key": {"sql": None, "process": "a:B", "key": [name]},
    }
    refusal(load, **broken[place])


@pytest.mark.parametrize("place", ["streams", "lookups"])
def test_names_are_short(load: Load, place: str) -> None:
    def named(length: int) -> dict[str, Any]:
        name = "n" * length
        if place == "lookups":
            joined = f"SELECT e.k AS k FROM events e JOIN {name} ON {name}.k = e.k"
            return {"lookups": {name: {"delta": "/lake/names"}}, "sql": joined}
        return {"streams": {name: {"delta": "/lake/events"}}, "sql": f"SELECT k FROM {name}"}

    assert load(**named(63))
    assert f"expected {place[:-1]} names of at most 63 characters" in refusal(load, **named(64))


def test_a_schedule_is_short(load: Load) -> None:
    """Airflow keeps it in words, in a column of 1000 characters; one too long would keep the whole file's DAGs away."""
    assert load(schedule=f"{','.join(map(str, range(10, 40)))} * * * *")
    assert "expected cron of at most 100 characters" in refusal(load, schedule=f"{','.join(['0'] * 60)} * * * *")


@pytest.mark.parametrize(
    ("sink", "home"), [("home/other/ledger", "home"), ("home", "home"), ("outer", "outer/home"), ("home/..", "home")]
)
def test_a_sink_inside_the_home_or_around_it_is_refused(place: Path, sink: str, home: str) -> None:
    flow = Flow(place, settings={"sinks": [{"delta": str(place / sink)}]})
    flow.settings["streams"] = {"events": {"delta": "/elsewhere/events", "event_time": "at", "lateness": "1 minute"}}
    with pytest.raises(NotOwned, match="apart from the home"):
        check_without_jvm(flow.rule(), place / home)


def test_a_sink_that_reaches_the_home_by_a_link_is_refused(place: Path) -> None:
    flow = Flow(place, sinks=1)
    flow.arrive([event(1)])
    flow.home.mkdir()
    (place / "door").symlink_to(flow.home)
    flow.settings["sinks"] = [{"delta": str(place / "door" / "counted" / "ledger")}]
    with pytest.raises(NotOwned, match="apart from the home"):
        check_without_jvm(flow.rule(), flow.home)


def test_a_sink_is_a_table_of_its_own_however_the_addresses_are_spelt(place: Path) -> None:
    """As on a file system that knows no case. A copy has the same id, so it stands for another spelling here."""
    flow = Flow(place, sinks=3)
    flow.arrive([])
    DeltaTable.create(flow.sink(0), SCHEMA)
    shutil.copytree(flow.sink(0), flow.sink(1))
    with pytest.raises(NotOwned, match=r"out1: expected a table of its own, found the one of sink .*out0"):
        check_without_jvm(flow.rule(), flow.home)
    shutil.rmtree(flow.sink(1))
    shutil.copytree(flow.source, flow.sink(2))
    with pytest.raises(NotOwned, match="out2: expected a table of its own, found the one of events"):
        check_without_jvm(flow.rule(), flow.home)


# --------------------------------------------------------------------------------------------------------- SQL

FUNCTIONS = ["reflect", "java_method", "try_reflect", "read_files", "http_request", "ai_query", "input_file_name"]
CALLS = [f"{name}('java.lang.System', 'getenv', 'HOME') IS NOT NULL" for name in FUNCTIONS]
TRICKS = [
    *CALLS,
    "`reflect`('java.lang.System', 'exit') IS NULL",
    "REFLECT ('java.lang.System', 'exit') IS NULL",
    "reflect/**/('java.lang.System', 'exit') IS NULL",
    "builtin.reflect('java.lang.System', 'exit') IS NULL",
    "k = (SELECT max(value) FROM text.`/etc/passwd`)",
    "k IN (SELECT value FROM text.`/etc/passwd`)",
    "EXISTS (SELECT 1 FROM delta.`/lake/secret`)",
    "k = 1; DROP TABLE x",
    "k = 1) OR (1 = 1",
    "k = 1 -- comment \\\n OR 1 = 1",
    "k = 1 /*+ BROADCAST(x) */",
    "k = '${env:HOME}'",
    "k = :parameter",
    "k = ${spark.jars}",
    "my_own_function(k)",
    "TRANSFORM(k) USING 'sh -c id' IS NULL",
    # Spark ends the comment at the first `*/`: a hint opens none.
    "k = 1 /* /*+ */ OR reflect('java.lang.System', 'exit') IS NULL -- */",
    "k = 1 /* /* */ /*+ */ OR k IN (SELECT value FROM text.`/etc/passwd`) -- */",
    # Words of the language, where Spark takes them for functions.
    *(f"{word}(k) IS NULL" for word in ("as", "by", "group", "union", "within", "and", "or")),
    "k = 1 AND or(k)",
    "k LIKE by(k)",
    "k * union(k) = 1",
    "k = k.within(k)",
    "CASE and(k) WHEN 1 THEN true END",
]
PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "sql": lambda sql: {"sql": f"SELECT k FROM events WHERE {sql}"},
    "where": lambda sql: {"streams": {"events": {"delta": "/lake/events", "where": sql}}},
    "event_time.expr": lambda sql: {
        "streams": {"events": {"delta": "/e", "event_time": {"name": "t", "expr": sql}, "lateness": "1 second"}}
    },
    "delete": lambda sql: {"sinks": [{"delta": "/lake/out", "key": ["k"], "delete": sql}]},
    "sinks.where": lambda sql: {"sinks": [{"delta": "/lake/out", "where": sql}]},
    "expect.check": lambda sql: {"expect": {"a": {"check": sql}}},
    "streams.expect": lambda sql: {"streams": {"events": {"delta": "/lake/events", "expect": {"a": {"check": sql}}}}},
}


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("place", PLACES)
def test_no_sql_anywhere_reaches_beyond_its_row(load: Load, place: str, trick: str) -> None:
    field = place.split(".")[0]
    # What looks like a variable is refused before it is SQL.
    assert field in refusal(load, **PLACES[place](trick)) or "${" in trick


@pytest.mark.parametrize(
    "statement", ["ADD JAR '/tmp/x.jar'", "SET spark.x = 1", "CREATE TABLE x AS SELECT 1", "TABLE secret"]
)
def test_no_statement_hides_before_the_select(load: Load, statement: str) -> None:
    said = refusal(load, sql=f"/* /*+ */ {statement} -- */\nSELECT k FROM events")
    assert "column 4: /*+ inside a comment" in said


@pytest.mark.parametrize("trick", TRICKS)
def test_nor_does_sql_of_a_replay(trick: str) -> None:
    """That of the command line and of the form of a manual trigger; and what a ledger holds of earlier ones."""
    plain = Replay(upto=1, stream=None, where="k = 1", corrected={"k": "lower(k)"})
    assert "lower" not in wanted(plain, [plain], ())
    for bad in (plain.model_copy(update={"where": trick}), plain.model_copy(update={"corrected": {"k": trick}})):
        for replay, earlier in ((bad, []), (plain, [bad])):
            with pytest.raises(Refused, match=r"--where|--set k"):
                wanted(replay, earlier, ())


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("place", [place for place in PLACES if place != "sql"])
def test_nor_does_what_an_open_epoch_is_finished_with(load: Load, place: str, trick: str) -> None:
    """A ledger may hold a rule that was written before the checks were as they are."""
    text = load(**PLACES[place]("k = 'the place'")).to_json()
    held = Rule.from_json(text.replace(json.dumps("k = 'the place'"), json.dumps(trick)))
    with pytest.raises(SqlRefused, match="rule plain: "):
        analyse_rule(Mock(), held, None, None)


EVIL = "c` .`date` IS NULL OR reflect('java.lang.System', 'exit') IS NULL OR `c"


@pytest.mark.parametrize("name", [EVIL, "`", "``", "a`b", "`a", "a`"])
def test_a_name_in_backquotes_stays_a_name_in_what_floodmark_writes(name: str) -> None:
    one, at = f"`{name.replace('`', '``')}`", {"events": "at", "others": "at"}
    joined = (
        f"SELECT c.k AS k FROM others AS {one} JOIN events c ON c.k = {one}.k AND c.at BETWEEN {one}.at - INTERVAL 1 "
        f"HOUR AND {one}.at + INTERVAL 1 HOUR"
    )
    renamed = f"(SELECT k, at AS {one} FROM events)"
    windowed = f"SELECT count(*) AS n FROM {renamed} GROUP BY window({one}, '1 hour'), k"
    ranged = (
        f"SELECT k, sum(k) OVER (ORDER BY {one} RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS s "
        f"FROM {renamed}"
    )
    for sql in (joined, windowed, ranged):
        words = words_of(analyse(sql, at).bounded(0, 1, lambda moment, _: f"timestamp_micros({moment})"))
        called = {word.name for i, word in enumerate(words) if is_call(words, i)}
        assert called <= {"count", "window", "sum", "timestamp_micros"}
    assert Span(name, "timestamp", 0, 1).holds.startswith(f"coalesce({one} >= ")
    assert micros(name, "timestamp") == f"unix_micros({one})"


@pytest.mark.parametrize(
    "table",
    ["delta.`/lake/x`", "parquet.`/lake/x`", "json.`/etc`", "csv.`s3://b/x`", "text.`/etc/passwd`", "`delta`.`/x`",
     "binaryFile.`/x`", "image.`/x`", "jdbc.`x`", "`delta./lake/x`", "spark_catalog.default.x", "`/lake/x`",
     "read_files('/etc')", "range(10)", "read_state_metadata('/x')", "table_changes('x', 1)", "identifier('events')"],
)  # fmt: skip
@pytest.mark.parametrize(
    "sql",
    ["SELECT k FROM {}", "SELECT e.k FROM events e JOIN {} x ON e.k = x.k", "SELECT k FROM (SELECT k FROM {})",
     "WITH a AS (SELECT k FROM {}) SELECT k FROM a", "SELECT k FROM events UNION ALL SELECT k FROM {}",
     "SELECT k FROM events, {}", "SELECT k FROM events, LATERAL (SELECT k FROM {})"],
)  # fmt: skip
def test_only_streams_and_lookups_are_tables(load: Load, sql: str, table: str) -> None:
    assert "sql" in refusal(load, sql=sql.format(table))


@pytest.mark.parametrize(
    "statement",
    ["DROP TABLE x", "INSERT INTO x SELECT k FROM events", "SET spark.jars=/x", "ADD JAR '/x.jar'", "CACHE TABLE x",
     "CREATE FUNCTION f AS 'x.Y'", "DESCRIBE events", "SHOW TABLES", "USE x", "CALL system.x()", "MERGE INTO x USING y",
     "EXECUTE IMMEDIATE 'SELECT 1'", "BEGIN SELECT 1; END", "EXPLAIN SELECT k FROM events", "TABLE events",
     "SELECT k FROM events; DROP TABLE x", "SELECT k FROM events\n;\nSELECT k FROM events"],
)  # fmt: skip
def test_one_select_is_all_that_a_rule_says(load: Load, statement: str) -> None:
    assert "sql" in refusal(load, sql=statement)


def test_sql_that_would_take_long_to_check_is_refused_or_checked_in_seconds() -> None:
    streams = {"events": "at"}
    begun = time.process_time()
    joins = " ".join(f"JOIN events e{i} ON e.at = e{i}.at" for i in range(500))
    with pytest.raises(SqlRefused, match="at most 50 joins, found 500"):
        analyse(f"SELECT e.k AS k FROM events e {joins}", streams)
    commas = ", ".join(f"events e{i}" for i in range(1, 500))
    with pytest.raises(SqlRefused, match="at most 50 joins, found 499"):
        analyse(f"SELECT e.k AS k FROM events e, {commas} WHERE e.at = e1.at", streams)
    steps = [f"a{i} AS (SELECT *, * FROM a{i - 1})" for i in range(1, 30)]
    with pytest.raises(SqlRefused, match="at most 20000 columns in all SELECTs together"):
        analyse(f"WITH a0 AS (SELECT *, k FROM events), {', '.join(steps)} SELECT k FROM a29", streams)
    analyse(f"SELECT {','.join(['$k$'] * 10_000)} FROM events".replace("$", "'"), streams)
    assert time.process_time() - begun < 30  # 96 s for the strings alone, compared each with each


NESTED = ["date({})", "timestamp({})", "int({})", "string({})", "decimal({})", "boolean({})", "struct({} AS a)",
          "map(1, {})", "array({})", "abs(({}))", "({})", "CASE WHEN {} THEN 1 END", "CAST({} AS decimal(9,2))",
          "k[{}]", "transform(a, x -> {})", "{}::date", "date(struct({}))", "k IN ({})"]  # fmt: skip


@pytest.mark.parametrize("form", NESTED)
def test_nesting_is_read_in_time_by_its_depth(form: str) -> None:
    """Where a name is tried as a type first, each level takes twice as long as the one in it."""
    nested = "k"
    for _ in range(16):
        nested = form.format(nested)
    begun = time.process_time()
    assert "k" in analyse_expression(nested)
    analyse(f"SELECT {nested} AS x FROM events", {"events": "at"})
    assert time.process_time() - begun < 10  # 30 s and more, were each tried as a type


@pytest.mark.parametrize("step", ["SELECT k FROM {0} UNION ALL SELECT k FROM {0}", "SELECT x.k FROM {0} x, {0} y"])
def test_what_reads_itself_twice_again_and_again_is_refused_at_once(step: str) -> None:
    steps = ", ".join(f"a{i} AS ({step.format(f'a{i - 1}')})" for i in range(1, 40))
    begun = time.process_time()
    with pytest.raises(SqlRefused, match="expected at most 2000 SELECTs"):
        analyse(f"WITH a0 AS (SELECT k FROM events), {steps} SELECT k FROM a39", {"events": "at"})
    assert time.process_time() - begun < 10
    twenty = " UNION ALL ".join(["SELECT k FROM a0"] * 20)
    assert analyse(f"WITH a0 AS (SELECT k FROM events), a1 AS ({twenty}) SELECT k FROM a1", {"events": "at"})


# -------------------------------------------------------------------------------------------------------- YAML


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    return "\n".join(lines + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)])


@pytest.mark.parametrize(
    ("yaml_text", "said"),
    [
        (bomb(), "anchors"),
        ("a: &a [*a]", "anchors"),
        ("a: {<<: *b}", "anchors"),
        ("a: !!python/object/apply:os.system ['id']", "tag"),
        ("a: !!python/name:os.system", "tag"),
        ("!!python/object:x.Y {}", "tag"),
        ("a: !!binary aGVsbG8=", "tag"),
        ("a: !!timestamp 2001-01-01", "tag"),
        ("a: !!set {x}", "tag"),
        ("%TAG ! tag:evil,2001:\n---\na: !x 1", "starts with !"),
        ("a: 1\nA: 2\na: 3", "duplicate key"),
        ("a: {b: 1, b: 2}", "duplicate key"),
        ('a: 1\n"\\x61": 2', "duplicate key"),
        ("[" * 100_000, f"nested deeper than {MAX_DEPTH}"),
        ("{a: " * 1000, f"nested deeper than {MAX_DEPTH}"),
        ("- " * 1000 + "x", f"nested deeper than {MAX_DEPTH}"),
        (f"a: [{'1,' * MAX_VALUES}1]", f"at most {MAX_VALUES} values"),
        ("".join(f"k{i}: 1\n" for i in range(MAX_VALUES)), f"at most {MAX_VALUES} values"),
        ("a: 1\n" * (MAX_BYTES // 5 + 1), "at most 1000000 bytes"),
        ("a: 1\n---\na: 2", "another document"),
        ("a: \ufffe", "is not allowed; leave it out"),
    ],
    ids=range(21),
)  # fmt: skip
def test_yaml_is_small_and_plain(yaml_text: str, said: str) -> None:
    begun = time.process_time()
    with pytest.raises(YamlRefused, match=said):
        read_yaml(yaml_text)
    assert time.process_time() - begun < 10


def test_a_rule_file_is_a_plain_file_of_its_folder_of_bounded_size(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (tmp_path / "outside").write_text(f"{MARK}: 1\n")
    (rules / "link.yaml").symlink_to(tmp_path / "outside")
    (rules / "folder.yaml").mkdir()
    (rules / "huge.yaml").write_text("#" * (MAX_CHARACTERS + 1))
    (rules / "latin.yaml").write_bytes(b"rule: caf\xe9\n")
    (rules / "zeros.yaml").write_bytes(b"\x00" * 100)
    (rules / "null.yaml").symlink_to("/dev/zero")
    (rules / "gone.yaml").symlink_to("nowhere")
    os.mkfifo(rules / "pipe.yaml")
    (rules / "plain.yaml").write_text(yaml.safe_dump(text()))
    (rules / "data").mkdir()
    (rules / "data" / "mounted.yaml").write_text(yaml.safe_dump(text(rule="mounted", sinks=[{"delta": "/o"}])))
    (rules / "mounted.yaml").symlink_to("data/mounted.yaml")  # as Kubernetes mounts a ConfigMap
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(load_rules(rules, {})), daemon=True)
    reader.start()
    reader.join(30)
    assert found, "reading a folder hangs"
    good, bad = found[0]
    assert sorted(good) == ["mounted", "plain"]
    said = {name: str(fault) for name, fault in bad.items()}
    assert MARK not in str(said)
    for name, words in {
        "link.yaml": "a link that leads outside",
        "null.yaml": "a link that leads outside",
        "folder.yaml": "expected a plain file",
        "pipe.yaml": "expected a plain file",
        "huge.yaml": "expected at most 1000000 characters",
        "latin.yaml": "expected UTF-8 text",
        "zeros.yaml": "is not allowed; leave it out",
        "gone.yaml": "cannot be read",
    }.items():
        assert words in said[name]


# ----------------------------------------------------------------------------------------------------- classes

CLASS = """
raise SystemExit("reading a rule runs nothing")
class Count:
    output = "k STRING"
    def process(self, key, rows, ctx):
        return []
"""
OF_CLASS = {"sql": None, "key": ["k"]}


@pytest.mark.parametrize(
    "process",
    ["os:system", "subprocess:Popen", "builtins:eval", "os.path:join", "importlib:import_module", "ctypes:CDLL",
     "../mine:Count", "..mine:Count", "/tmp/mine:Count", ".mine:Count", "mine.:Count", "mine:Count.x", "mine:__class__",
     "mine:Count()", "mine;x:Count", "mine:Count\n", "\uff4dine:Count", "m\xefne:Count", "mine",
     ":Count", "mine:", "a:b:c"],
    ids=ascii,
)  # fmt: skip
def test_names_of_classes_that_are_none(load: Load, tmp_path: Path, process: str) -> None:
    (tmp_path / "mine.py").write_text(CLASS)
    assert "process: " in refusal(load, process=process, **OF_CLASS)


def test_a_module_beside_the_rule_is_a_plain_file_of_the_folder(load: Load, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    (rules / "pack").mkdir(parents=True)
    (tmp_path / "outside.py").write_text(CLASS)
    (rules / "linked.py").symlink_to(tmp_path / "outside.py")
    (rules / "pack" / "within.py").symlink_to("../mine.py")
    (rules / "mine.py").write_text(CLASS)
    (rules / "huge.py").write_text(CLASS + "#" * MAX_CHARACTERS)
    (rules / "latin.py").write_bytes(b"# \xe9")
    (rules / "away").symlink_to(tmp_path)
    os.mkfifo(rules / "pipe.py")
    assert load(process="mine:Count", **OF_CLASS).process
    assert load(process="pack.within:Count", **OF_CLASS).process
    for module, words in {
        "linked": "leads outside",
        "away.outside": "leads outside",
        "huge": "at most 1000000",
        "pipe": "expected a plain file",
        "latin": "utf-8",
    }.items():
        assert words in refusal(load, process=f"{module}:Count", **OF_CLASS)


@pytest.mark.parametrize(
    ("allowed", "module", "may"),
    [
        ("mine", "mine", True),
        ("mine", "mine.deep", True),
        ("mine", "mines", False),
        ("mine.deep", "mine", False),
        (" other , mine ", "mine", True),
        ("", "mine", False),
        ("mine.*", "mine.deep", False),
    ],
)
def test_the_operator_names_the_modules_that_rules_may_use(
    load: Load, tmp_path: Path, allowed: str, module: str, may: bool
) -> None:
    file = (tmp_path / "rules").joinpath(*module.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True)
    file.write_text(CLASS)
    given = {"env": {"FLOODMARK_CLASSES": allowed}, "process": f"{module}:Count", **OF_CLASS}
    if may:
        assert load(**given).process
    else:
        assert "expected a module out of FLOODMARK_CLASSES" in refusal(load, **given)


@pytest.mark.parametrize("allowed", ["company", "company.alarms"])
def test_nothing_beside_a_rule_stands_in_for_a_listed_package(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    site, own = tmp_path / "site" / "company", tmp_path / "rules" / "company"
    for folder in (site, own):
        folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(site.parent)
    (site / "alarms.py").write_text("# reviewed" + CLASS)
    given = {"env": {"FLOODMARK_CLASSES": allowed}, "process": "company.alarms:Count", **OF_CLASS}
    found = load(**given).process
    assert found
    assert found.source.startswith("# reviewed")
    (own / "alarms.py").write_text(CLASS)
    assert "expected the module company.alarms in one place" in refusal(load, **given)
    (site / "alarms.py").unlink()  # nor for a module that the package has not
    assert "expected the module company.alarms in one place" in refusal(load, **given)
    assert load(**given | {"env": {}}).process


def test_a_folder_of_rules_on_the_python_path_is_one_place(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "rules" / "company"
    own.mkdir(parents=True)
    (own / "alarms.py").write_text(CLASS)
    monkeypatch.syspath_prepend(own.parent)
    assert load(env={"FLOODMARK_CLASSES": "company"}, process="company.alarms:Count", **OF_CLASS).process


@pytest.mark.parametrize("name", ["\xe9", "e\u0301", "\uff41", "a" * 64, "a b", "../a", ""], ids=ascii)
def test_names_of_state_are_plain_for_they_are_folders(load: Load, tmp_path: Path, name: str) -> None:
    (tmp_path / "rules").mkdir()
    changed = CLASS.replace("def process", f"state = {{{name!r}: 'n INT'}}\n    def process")
    (tmp_path / "rules" / "mine.py").write_text(changed)
    assert "with names of at most 63 letters, digits and _" in refusal(load, process="mine:Count", **OF_CLASS)


def test_a_long_module_is_looked_through_in_seconds() -> None:
    begun = time.process_time()
    assert not list(unstable("a\n" * 200_000, "mine.py"))
    assert time.process_time() - begun < 12  # 24 s, where each name is taken from the front of a list


# ----------------------------------------------------------------------------------------------------- secrets

SECRETS = ["DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "API_KEY", "GITHUB_TOKEN", "AZURE_SAS",
           "AIRFLOW__CORE__FERNET_KEY", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW_CONN_LAKE", "DBPASSWORD",
           "AIRFLOW_VAR_X", "PGPASSWORD", "db_passwd", "MyToken", "SENTRY_DSN", "JWT", "OPENAI_APIKEY",
           "SSH_PRIVATE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "PG_PWD",
           "BASIC_AUTH", "PGPASS", "DB_CREDS"]  # fmt: skip
FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "description": lambda value: {"description": f"x {value}"},
    "where": lambda value: {"streams": {"events": {"delta": "/e", "where": f"k = '{value}'"}}},
    "sql": lambda value: {"sql": f"SELECT sha2(concat(k, '{value}'), 256) AS k FROM events"},
    "sinks": lambda value: {"sinks": [{"delta": f"s3://b/{value}"}]},
    "conf": lambda value: {"spark": {"conf": {"spark.app.x": value}}},
    "schedule": lambda value: {"schedule": {"assets": [value]}},
    "owner": lambda value: {"airflow": {"owner": value}},
    "qos": lambda value: {"qos": value},
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_variable_with_the_name_of_a_secret_may_stand_nowhere(load: Load, name: str) -> None:
    for field, change in FIELDS.items():
        for written in (f"${{{name}}}", f"${{{name}:-x}}"):
            said = refusal(load, env={name: MARK}, **change(written))
            assert f"the variable {name} has the name of a secret" in said, field


@pytest.mark.parametrize(
    "name", ["LAKE", "PWD", "OLDPWD", "HOME", "REGION", "MONKEY", "PASSAGE", "DATABASE", "COMPASS"]
)
def test_other_names_are_not_taken_for_secrets(name: str) -> None:
    assert secret_variable(name, {}) is None


LONG_OR_ODD = [
    f"postgres://u:{MARK * 40}@h/x", f"postgres://u:it's{MARK}@h/x", f"postgres://u:{MARK} {MARK}@h/x",
    f"https://{MARK * 40}@h", f"postgres://us/er:{MARK}@h", f"postgres://{'u' * 200}:{MARK}@h",
    f"postgres://u:{MARK}@{MARK}@h/x", f"postgres://u:{MARK}[@h/x",
]  # fmt: skip


@pytest.mark.parametrize("address", LONG_OR_ODD)
def test_a_password_may_be_long_or_odd(load: Load, address: str) -> None:
    said = refusal(load, spark={"conf": {"spark.app.x": address}})
    assert "setting spark.app.x is or contains a secret" in said
    assert has_credentials(address)


@pytest.mark.parametrize("field", FIELDS)
def test_a_value_with_a_password_in_it_is_found_whatever_its_name(load: Load, field: str) -> None:
    said = refusal(load, env={"LAKE": f"s3://user:{MARK}@bucket/x"}, **FIELDS[field]("${LAKE}"))
    assert "the variable LAKE contains an address with a password" in said
    for address in (f"https://{MARK}@host/x", f"https://account.example/x?sv=1&sig={MARK}", *LONG_OR_ODD,
                    f"s3a://bucket/x#access_key={MARK}"):  # fmt: skip
        assert "contains an address with a password" in refusal(load, env={"LAKE": address}, **FIELDS[field]("${LAKE}"))


def test_the_operator_names_the_variables_that_rules_may_use(load: Load) -> None:
    env = {"LAKE": "/lake", "OTHER": MARK, "API_KEY": "k", ALLOWED: "LAKE, API_KEY"}
    rule = load(env=env, sinks=[{"delta": "${LAKE}/out"}], description="${API_KEY}")
    assert (rule.sinks[0].address, rule.description) == ("/lake/out", "k")
    said = refusal(load, env=env, description="${OTHER}")
    assert "the variable OTHER is not in FLOODMARK_VARIABLES (LAKE, API_KEY)" in said
    assert "(none)" in refusal(load, env={**env, ALLOWED: ""}, description="${LAKE}")


ADDRESSES = [
    f"s3://user:{MARK}@bucket/x", f"s3a://{MARK}@bucket/x", f"s3://bucket/x?token={MARK}", f"s3://bucket/x#{MARK}",
    f"abfss://box:{MARK}@account.dfs.core.windows.net/x", f"hdfs://user:{MARK}@node:8020/x", f"s3://u:{MARK}/y@b/x",
    f"wasbs://box@account.blob.core.windows.net/x?sig={MARK}", f"file:///lake?password={MARK}", f"s3://:{MARK}@b/x",
    f"file:/lake/x?token={MARK}", f"s3:/user:{MARK}@b/x", f"s3:///{MARK}@b/x", f"abfss://box%3A{MARK}@account/x",
]  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_with_credentials_is_refused_and_not_repeated(load: Load, address: str) -> None:
    stream = {"delta": address}
    for field, change in {
        "streams.events.delta": {"streams": {"events": stream}},
        "lookups.names.delta": {"lookups": {"names": stream}},
        "sinks[0].delta": {"sinks": [stream]},
        "schedule.assets[0]": {"schedule": {"assets": [address]}},
    }.items():
        said = refusal(load, **change)
        assert f"{field}: expected a plain address, found one with" in said


@pytest.mark.parametrize(
    "address",
    [
        "s3://a/x,abfss://box@acc/y",
        "/lake/a?b#c",
        "lake/a@b",
        "s3://bucket/a",
        "abfss://box@account.dfs.core.windows.net/a",
        "hdfs://node:8020/a",
    ],
)
def test_other_addresses_have_no_credentials(address: str) -> None:
    assert not has_credentials(address)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"url": f"https://user:{MARK}@api.example.com/orders"}, "settings.url"),
        ({"url": f"https://user%3A{MARK}%40api.example.com"}, "settings.url"),
        ({"urls": ["https://a", f"x://u:{MARK}@h"]}, "settings.urls[1]"),
        ({"token": MARK}, "settings.token"),
        ({"db_password": MARK}, "settings.db_password"),
        ({"auth": {"apiKey": MARK}}, "settings.auth.apiKey"),
        ({"headers": {"Authorization": f"Bearer {MARK}"}}, "settings.headers.Authorization"),
        ({"token_url": "https://h/token", "page_token": "next", "key": "id", "secret": "arn:aws:sm:x"}, None),
        ({"token": "", "password": None, "secret": {"name": "x"}, "url": "https://h/a?page_token=1"}, None),
        ({"url": f"https://user:{MARK}/with/slashes@h"}, "settings.url"),
        ({"url": f"jdbc:postgresql://user:{MARK}@h:5432,h2:5432/db"}, "settings.url"),
        ({"url": f"https://h:80/next?then=https://user:{MARK}@h2"}, "settings.url"),
        ({"text": f"first //x, then '//user:{MARK}@h/x'"}, "settings.text"),
        ({"url": "https://api.example.com:8443/accounts/joe@example.com"}, None),
        ({"url": "mongodb://h:27017,h2:27017/?user=joe@example.com"}, None),
        ({"url": "https://[::1]:3000/@team/feed"}, None),
        ({"url": "https://h:3000/to?url=https%3A%2F%2Fh2%3A80%2F%40team"}, None),
        ({"url": "https://h/x?since=2024-01-01T00:00:00&who=joe@x.com"}, None),
        ({"sql": "SELECT 'a//b:c@d'", "template": "https://LOGIN:PASSWORD@host"}, None),
    ],
)
def test_a_sure_secret_among_the_settings_of_a_class_is_named(settings: dict[str, Any], name: str | None) -> None:
    assert [found for found, _ in secrets_in(settings, "settings")] == ([name] if name else [])


def test_a_secret_of_a_class_is_refused_before_a_ledger_has_it_and_not_after(place: Path) -> None:
    """A rule of before goes on; another secret of it is refused."""

    def rule(**settings: str) -> Rule:
        shop = {"class": "shop:Shop", "schema": "k STRING", "settings": settings}
        flow.settings = {"streams": {"events": {"python": shop}}, "sql": "SELECT k FROM events"}
        return flow.rule()

    flow = Flow(place, sinks=1)
    (place / "rules").mkdir()
    methods = ("earliest(self)", "latest(self)", "read(self, begin, end)")
    body = "".join(f"    def {method}:\n        return 0\n" for method in methods)
    (place / "rules" / "shop.py").write_text(f"class Shop:\n{body}")
    with pytest.raises(Refused, match=r"stream events: settings.token: expected no secret") as caught:
        check_without_jvm(rule(token=MARK), flow.home)
    assert MARK not in str(caught.value) and LedgerReader.load(flow.place.ledger) is None
    first = Commit(
        entry=Entry(0, ("0",)).text(), watermark=None, maxima={"events": None}, rule=rule(token=MARK).to_json()
    )
    head = Ledger.open(flow.place.ledger, "by hand").begin(1, "token", first)
    check_settings(rule(token=MARK, url="https://h"), head)
    with pytest.raises(Refused, match="expected no secret"):
        check_settings(rule(token=f"{MARK}2"), head)


def test_a_value_in_the_wrong_place_is_repeated_without_its_password(load: Load) -> None:
    address = f"s3://user:{MARK}@b"
    secret = f"spark.hadoop.fs.s3a.secret.key={MARK}"
    for change in ({"sinks": {"delta": address}}, {"qos": address}, {"epoch": [address]}, {"timezone": address},
                   {"spark": {"conf": secret}}, {"spark": {"conf": [{"password": MARK}]}}, {"spark": [secret]},
                   {"sinks": [{"delta": "/x", "properties": [f"token={MARK}"]}]}, {"qos": f"https:/{MARK}@b"},
                   {"streams": {"events": ["/lake", {"password": MARK}]}}, {"schedule": f"x:u:{MARK}@h"},
                   {"sinks": [{"delta": f"https://a.blob/x;sig={MARK}"}]}):  # fmt: skip
        refusal(load, **change)
    assert (
        redacted(f"at s3://u:{MARK}@b/x?sig={MARK} and https://h/p?a={MARK}")
        == "at s3://***@b/x?*** and https://h/p?***"
    )
    assert redacted(f"x://u:p@{MARK}@h/a@b,s3://v:{MARK}@c/x") == "x://***@h/a@b,s3://***@c/x"
    assert redacted(f"(s3a://b/x#access_key={MARK}) x://u/{MARK}:{MARK * 40}@h") == "(s3a://b/x#*** x://***@h"
    assert redacted(f"s3:/u:{MARK}@b https://{MARK}@h abfss://box@a/x") == "s3://***@b https://***@h abfss://box@a/x"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", MARK),
        ("spark.hadoop.fs.s3a.access.key", MARK),
        ("spark.hadoop.fs.s3a.session.token", MARK),
        ("spark.hadoop.fs.azure.account.key.x.blob.core.windows.net", MARK),
        ("spark.hadoop.fs.azure.sas.box.account", MARK),
        ("spark.hadoop.fs.s3a.proxy.password", MARK),
        ("spark.kubernetes.authenticate.submission.oauthToken", MARK),
        ("spark.driver.extraJavaOptions", f"-Xmx1g -Dfs.s3a.secret.key={MARK}"),
        ("spark.executor.extraJavaOptions", f"-Djavax.net.ssl.keyStorePassword={MARK}"),
        ("spark.eventLog.dir", f"s3a://user:{MARK}@bucket/logs"),
        ("spark.eventLog.dir", f"https://account.example/logs?sv=1&sig={MARK}"),
        ("spark.hadoop.fs.gs.auth.service.account.private.key", MARK),
        ("spark.hadoop.fs.gs.encryption.key", MARK),
        ("spark.hadoop.fs.s3a.encryption.key", MARK),
        ("spark.hadoop.fs.s3a.server-side-encryption.key", MARK),
        ("spark.hadoop.fs.azure.encryption.encoded.client-provided-key", MARK),
        ("spark.hadoop.fs.azure.encryption.encoded.client-provided-key.account.dfs.core.windows.net", MARK),
        ("spark.hadoop.fs.s3a.secret.key.provider", MARK),
        ("spark.hadoop.fs.s3a.endpoint", f"https://{MARK}@host"),
        ("spark.kubernetes.driverEnv.DB_PASS", MARK),
        ("spark.kubernetes.driverEnv.FERNET_KEY", MARK),
        ("spark.yarn.appMasterEnv.PGPASS", MARK),
        ("spark.executor.extraJavaOptions", f"-Ddb.pass={MARK}"),
    ],
)
def test_a_setting_of_spark_that_is_a_secret_is_refused(load: Load, key: str, value: str) -> None:
    assert f"setting {key} is or contains a secret" in refusal(load, spark={"conf": {key: value}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "com.amazonaws.auth.ProfileCredentialsProvider"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "com.amazonaws.auth.A, org.apache.hadoop.fs.s3a.B"),
        ("spark.hadoop.fs.s3a.encryption.key", "arn:aws:kms:eu-west-1:1234:key/8a-9b"),
        ("spark.hadoop.fs.gs.auth.service.account.enable", "true"),
        ("spark.io.encryption.keySizeBits", "256"),
        ("spark.network.crypto.keyLength", "128"),
        ("spark.kubernetes.driverEnv.LAKE", "/lake"),
        ("spark.eventLog.dir", "abfss://box@account.dfs.core.windows.net/logs"),
        ("primary.key", "id"),
        ("spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY", "lake:key"),
        ("spark.kubernetes.executor.secrets.lake", "/etc/lake"),
        ("spark.driver.extraJavaOptions", "-Xlog:gc -Dx=y"),
        ("spark.sql.adaptive.enabled", "true"),
    ],
)
def test_a_setting_that_says_where_a_secret_is_kept_is_none(key: str, value: str) -> None:
    assert not secret_setting(key, value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("spark.eventLog.dir", "/logs/$${env:DB_PASSWORD}", "expected text without ${"),
        ("spark.hadoop.fs.s3a.endpoint", "$${env.DB_PASSWORD}", "expected text without ${"),
        ("spark.driver.extraJavaOptions", "-Xmx1g -Dspark.sql.ansi.enabled=false", "contains Spark settings"),
        ("spark.executor.extraJavaOptions", '-"Dspark.plugins=x.Y"', "contains Spark settings"),
        ("spark.driver.extraJavaOptions", "@/tmp/options", "names a file with options"),
        ("spark.executor.extraJavaOptions", "-Xmx1g '@'/tmp/options", "names a file with options"),
        ("spark.yarn.am.extraJavaOptions", "-XX:VMOptionsFile=/tmp/options", "names a file with options"),
        ("spark.driver.extraJavaOptions", "-Xmx1g -XX:Flags=/tmp/flags", "names a file with options"),
        ("spark.hadoop.fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem", "cannot be set by a rule"),
    ],
)
def test_a_setting_brings_no_others_and_no_variables(load: Load, key: str, value: str, said: str) -> None:
    assert f"setting {key}" in (found := refusal(load, spark={"conf": {key: value}}))
    assert said in found


@pytest.mark.parametrize(
    "key", ["spark.app.a\nspark.sql.extensions", "spark.app.a=b", "spark.app.a b", "spark.app.\xe9"]
)
def test_a_setting_has_a_plain_name(load: Load, key: str) -> None:
    assert "expected names of settings" in refusal(load, spark={"conf": {key: "x"}})


@pytest.mark.parametrize(
    "key", ["spark.metrics.conf.*.sink.x.class", "spark.kubernetes.driver.annotation.iam.amazonaws.com/role"]
)
def test_names_of_settings_that_are_plain_enough(load: Load, key: str) -> None:
    assert load(spark={"conf": {key: "x"}})


@pytest.mark.parametrize("cron", ["R * * * *", "r * * * *", "R/5 * * * *", "0 1,R * * *", "H * * * *"])
def test_a_schedule_is_the_same_at_every_look(load: Load, cron: str) -> None:
    assert "expected cron with five fields" in refusal(load, schedule=cron)
    assert load(schedule="0 0 * MAR THU").schedule == "0 0 * MAR THU"


@pytest.mark.parametrize("asset", [f"x:y?token={MARK}", f"x:y#{MARK}", f"x:{MARK}@y", f"x:u:{MARK}@y", f"y?{MARK}"])
def test_an_asset_is_an_address_alone(load: Load, asset: str) -> None:
    assert "schedule.assets[0]: expected a plain address" in refusal(load, schedule={"assets": [asset]})
    plain = ["abfss://box@account/x", "x:y", "s3://bucket/a@b"]
    assert load(schedule={"assets": plain}).schedule.assets == tuple(plain)


def test_what_spark_would_put_in_place_of_a_variable_is_refused(load: Load) -> None:
    stays = "/lake/$${env:DB_PASSWORD}"
    assert "expected text without ${" in refusal(load, sinks=[{"delta": "/out", "properties": {"a": stays}}])
    assert "sinks[0].delta: expected a path or a URI" in refusal(load, sinks=[{"delta": stays}])


def test_long_texts_are_searched_for_secrets_in_seconds() -> None:
    begun = time.process_time()
    for long in ("secret" * 20_000, "//:" * 20_000, "a://" * 20_000, ":/" * 20_000):
        assert not secret_setting("spark.app.x", long)
        assert not gives_password(long)
        assert redacted(long) == long
    assert redacted("https://" + "a@" * 20_000) == "https://***@"
    assert redacted("//@" * 20_000 + " //" + ":" * 20_000 + "@").endswith("@ //***@")
    assert time.process_time() - begun < 12  # 38 s for the first alone, where each begins a search of all the rest


def test_no_error_tells_what_stands_in_addresses() -> None:
    """A store's client says where it has failed, and may have its address from the environment."""
    said = f"error sending request for url (https://user:{MARK}@host/x?sig={MARK})"
    assert str(RunFailed(f"the table cannot be read: {said}")).endswith("(https://***@host/x?***")
    assert message(OSError(said)) == "OSError: error sending request for url (https://***@host/x?***"
    assert str(Refused("no table at s3://b/x? Look at s3://b")) == "no table at s3://b/x? Look at s3://b"


STORE = f"GET http://user:{MARK}@host/bucket gave 403"


def test_no_view_audit_or_report_tells_what_stands_in_a_store_s_address(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs raises a store's refusal as an OSError, with the address that the environment gave it."""

    def refused(_: object) -> None:
        raise OSError(STORE)

    monkeypatch.setattr(LedgerReader, "load", refused)
    said = "OSError: GET http://***@host/bucket gave 403"
    flow = Flow(place)
    flow.arrive([event(1)])
    assert glance(flow.rule(), flow.home).fault == said
    assert home_status(place, "one").error == said
    with pytest.raises(Unreadable, match=re.escape(said)), read_errors():
        refused(None)
    assert _fault(OSError(STORE))["error"] == said.removeprefix("OSError: ")


def test_a_finding_of_an_audit_tells_nothing_of_a_store_s_address(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Finding:
        raise OSError(STORE)

    named = SimpleNamespace(finding=lambda what: Finding("broken", what))
    [found] = until_unreadable(named, (refused() for _ in "x"))  # type: ignore[arg-type]
    assert found.what == "a file cannot be read: GET http://***@host/bucket gave 403"
    begun(Flow(place, "one"))
    monkeypatch.setattr(certificate, "_follow", refused)
    made = certificate.audit("one", place / "home", deep=False)
    assert made is not None
    assert "cannot be followed (OSError: GET http://***@host/bucket gave 403)" in str(made.findings)


def test_no_command_shows_what_the_environment_keeps(place: Path) -> None:
    flow = Flow(place)
    flow.arrive([event(1)])
    flow.write_rule()
    bad = flow.text() | {"rule": "bad", "description": "${DB_PASSWORD}", "sinks": [{"delta": f"s3://u:{MARK}@b/x"}]}
    (place / "rules" / "bad.yaml").write_text(yaml.safe_dump(bad))
    env = dict.fromkeys(SECRETS, MARK) | {"FLOODMARK_RULES": str(place / "rules"), "FLOODMARK_HOME": str(flow.home)}
    for words in ("validate", "validate --connect", "list", "status", "plan counted", "plan bad", "epochs counted",
                  "run bad", "audit counted", "state counted"):  # fmt: skip
        for form in ([], ["--json"]):
            found = CliRunner().invoke(app, [*words.split(), *form], env=env)
            assert MARK not in found.output, words
            assert found.output, words
