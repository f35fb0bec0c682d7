"""The documentation of a rule's DAG: whole, and whatever a rule says in it stays text. Markdown is really rendered."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from test_dags import write

from floodmark.core.rules.rule import load_rule
from floodmark_airflow.dags.about import about, about_group, block, code, text

OWN = {"p", "h3", "ul", "li", "code", "pre", "br"}
EVIL = """<script>alert(1)</script> [click](javascript:alert(1)) ![x](http://x/y.png) `tick` **b**
# heading
| a | b |

<img src=x onerror=alert(1)> &amp; http://example.org"""
CLASS = """
class Alarm:
    output = "k STRING, n BIGINT"
    def process(self, key, rows, ctx):
        yield 4242
"""
PIECES = st.text(alphabet=st.sampled_from(list("`~*_[]()<>#!|\\&;-+=.1ab \n")), max_size=60)


class Page(HTMLParser):
    """What a reader of the page gets: its elements, the text in them, and attributes that reach elsewhere."""

    def __init__(self, markdown: str):
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: list[str] = []
        self.words = ""
        self.feed(MarkdownIt("gfm-like", {"linkify": False}).render(markdown))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes += [name for name, _ in attrs if name != "class"]

    def handle_data(self, data: str) -> None:
        self.words += data


def page(rules: Path, **settings: Any) -> Page:
    return Page(about(load_rule(write(rules, "one", **settings), os.environ)))


def test_it_says_what_one_wants_to_know(rules: Path, place: Path) -> None:
    stream = {"delta": "${LAKE}/events", "event_time": "at", "lateness": "30 minutes", "where": "n > 0"}
    sql = "SELECT window.start AS start, count(*) AS c FROM events GROUP BY window(at, '1 hour')"
    found = page(rules, description="Counts.", streams={"events": stream}, sql=sql, airflow={"owner": "team a"}).words
    for said in (
        "Counts.",
        f"events: delta {place}/lake/events, event time at, may come 30 minutes late, only some of its rows (where)",
        "windows of 1 hour, a new one every 1 hour, without overlap",
        f"delta {place}/lake/one_out: exactly once, rows added",
        "floodmark run one",
        "floodmark status one",
        "owner: team a",
        "the tab Floodmark shows it to users who may see this DAG's code",
    ):
        assert said in found


def test_it_has_none_of_the_rule_s_code(rules: Path) -> None:
    """Airflow has a permission of its own for that."""
    secret = "n <> 4242"
    stream = {"delta": "${LAKE}/events", "where": secret, "expect": {"few": {"check": secret, "on_fail": "drop"}}}
    sinks = [{"delta": "${LAKE}/out", "where": secret, "columns": ["n"]}]
    expect = {"expect": {"some": {"check": secret, "on_fail": "warn"}}}
    sql = f"SELECT n FROM events WHERE {secret}"
    found = page(rules, streams={"events": stream}, sinks=sinks, sql=sql, **expect).words
    assert "4242" not in found and "SELECT" not in found
    for said in ("few, else drop", "some, else warn", "columns n, only some of the results (where)"):
        assert said in found
    (rules / "alarms.py").write_text(CLASS)
    timed = {"delta": "${LAKE}/events", "event_time": "at", "lateness": "1 hour"}
    path = write(rules, "one", process="alarms:Alarm", key=["k"], streams={"events": timed})
    path.write_text(path.read_text().replace("sql: SELECT n FROM events\n", ""))
    found = Page(about(load_rule(path, os.environ))).words
    assert "alarms:Alarm, by k: the tab Floodmark shows it" in found and "4242" not in found


def test_it_says_when_the_rule_runs(rules: Path) -> None:
    assert "only when it is started manually" in page(rules).words
    assert "*/5 * * * *, in Europe/Berlin" in page(rules, schedule="*/5 * * * *", timezone="Europe/Berlin").words
    assert "updated: file:///lake/x" in page(rules, schedule={"assets": ["file:///lake/x"]}).words
    found = page(rules, schedule="@hourly", group="small").words
    assert "@hourly, in UTC" in found and "by the DAG group.small" in found


def test_that_of_a_group_names_its_rules_and_how_to_run_them(rules: Path) -> None:
    members = [load_rule(write(rules, name, group="small", description=EVIL), os.environ) for name in ("one", "two")]
    found = Page(about_group("small", members))
    assert found.elements <= OWN and found.attributes == []
    for said in ("rule.one: <script>alert(1)</script>", "floodmark run one two", "only when it is started manually"):
        assert said in found.words


def test_what_a_rule_says_stays_text(rules: Path) -> None:
    found = page(rules, description=EVIL, airflow={"owner": "<i>me</i> [x](y)"})
    assert found.elements <= OWN
    assert found.attributes == []
    for said in (
        "<script>alert(1)</script> [click](javascript:alert(1))",
        "# heading",
        "| a | b |",
        "<i>me</i> [x](y)",
    ):
        assert said in found.words


@given(PIECES)
def test_text_is_text(written: str) -> None:
    found = Page("x" + text(written))
    assert found.elements <= {*OWN, "hr", "ol", "h1", "h2"}, "of a line that begins with -, +, = or a number"
    assert found.attributes in ([], ["start"])


@given(PIECES)
def test_code_is_code(written: str) -> None:
    words = " ".join(written.split())
    if words:
        assert Page(f"a {code(written)} b").words.strip() == f"a {words} b"
    found = Page(block("sql", written))
    assert (found.elements, found.words.strip()) == ({"pre", "code"}, written.strip())


def test_a_description_like_a_file_name_reads_no_file(rules: Path) -> None:
    assert not about(load_rule(write(rules, "one", description="README.md"), os.environ)).endswith(".md")


def test_a_broken_file_shows_its_reason_as_text(rules: Path) -> None:
    from floodmark_airflow.dags.dag_factory import build_broken

    found = Page(build_broken("a`b.yaml", "why\n```\n<script>", set()).doc_md or "")
    assert found.elements <= OWN and "<script>" in found.words


@pytest.mark.parametrize("language", ["sql", ""])
def test_a_block_names_its_language(language: str) -> None:
    assert block(language, "x").startswith(f"```{language}\n")
