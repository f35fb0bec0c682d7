"""The documentation: the site builds strictly, and no snippet in it is wrong.

| snippet | what is done with it |
|---|---|
| a rule, or a part of one (yaml) | checked as `validate` does, a part over a rule that is whole |
| test cases (yaml) | read, and checked against their rule's columns where it stands on the page |
| commands (bash) | each `floodmark` is parsed by the command line, each `make` is a target; the tutorial's are run |
| sql | analysed as a rule's SQL |
| python | compiled; a class and its test are run |
| json | read |
| text on the page of what breaks | one of the messages that the code can say |

`make prove` also runs rules, queries and commands: `tests/spark/test_shown_rules.py`, `test_shown_commands.py`.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from support.shown import write_rule
from support.site import build
from support.snippets import CHECKOUT, Snippet, commands, of_page, pages, snippets
from typer.main import get_command

from floodmark.cli.app import app
from floodmark.cli.commands.init import write
from floodmark.connectors.targets.postgres.statements import positions_table
from floodmark.core.cases.casefile import case_schema_text
from floodmark.core.rules.rule import json_schema, load_rule
from floodmark.core.rules.words import WORDS
from floodmark.core.sql import analyse

KINDS = ("bash", "zsh", "fish", "yaml", "sql", "python", "json", "text")
STREAMS = {"flights": "date"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


def test_the_site_builds_without_warnings_and_has_every_page(site: Path) -> None:
    made = {path.relative_to(site).with_suffix(".md").as_posix() for path in site.rglob("*.html")}
    written = {page.relative_to(CHECKOUT / "docs").as_posix() for page in pages() if "docs" in page.parts}
    missing = {page.replace("README.md", "index.md") for page in written} - made
    assert not missing
    assert {"reference/commands.md", "reference/rule-file.md", "reference/messages.md"} <= made


def test_every_page_can_be_reached_by_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text()
    for path in site.rglob("*.html"):
        if path.name not in ("404.html", "index.html"):
            assert f'href="{path.relative_to(site).as_posix()}"' in home, path


@pytest.mark.parametrize("page", pages(), ids=str)
def test_blocks_of_a_list_stay_in_it(page: Path) -> None:
    """Markdown of the site wants four spaces; with fewer, the list ends there, and its numbers begin again at 1."""
    fenced, before, outside = False, "", []
    for at, line in enumerate((CHECKOUT / page).read_text().splitlines(), 1):
        fence, item = re.match(r" *```", line), re.match(r" *([-*]|\d+\.) ", line)
        indent = len(line) - len(line.lstrip())
        if indent % 4 and (fence or (not fenced and line.strip() and (item or not before.strip()))):
            outside.append((at, line))
        fenced, before = fenced != bool(fence), line
    assert outside == []


def test_nothing_of_the_site_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = re.findall(
            r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?(https?:[^"' >]+)""", path.read_text()
        )
        assert not loaded, path


def test_the_reference_has_every_command_and_every_key(site: Path) -> None:
    said = (site / "reference" / "commands.html").read_text()
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        assert f"floodmark {name}" in said
    keys = (site / "reference" / "rule-file.html").read_text()
    assert all(f"<code>{key}</code>" in keys for key in json_schema()["properties"])


def test_every_key_of_a_rule_file_is_described() -> None:
    schema = json_schema()
    models = {"WrittenRule": schema, **schema["$defs"]}
    keys = ((model, key, one) for model, found in models.items() for key, one in found["properties"].items())
    assert not [f"{model}.{key}" for model, key, one in keys if "description" not in one], "see core/rules/words.py"
    assert not {(m, key) for m, words in WORDS.items() for key in words if key not in models[m]["properties"]}


@pytest.mark.parametrize("one", snippets(), ids=str)
def test_every_snippet_says_what_it_is(one: Snippet) -> None:
    assert one.kind in KINDS


@pytest.mark.parametrize("one", snippets("yaml"), ids=str)
def test_rules_and_parts_of_rules_are_valid(one: Snippet, tmp_path: Path) -> None:
    said = yaml.safe_load(one.text)
    if "cases" in said:
        from jsonschema import validate

        return validate(said, json.loads(case_schema_text()))
    load_rule(write_rule(one, tmp_path), {"LAKE": "lake"})


@pytest.mark.parametrize("one", snippets("bash"), ids=str)
def test_commands_can_be_said(one: Snippet) -> None:
    targets = re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.M)
    for words in commands(one.text):
        if Path(words[0]).name == "floodmark" and words[1:2] != ["--install-completion"] != words[1:2]:
            _parsed(words[1:])
            named = [word for word in words[2:] if not word.startswith("-")]
            assert words[1] != "validate" or all(word.endswith((".yaml", "prod")) for word in named), "it takes files"
        if words[0] == "make":
            assert [word for word in words if "=" not in word][-1] in targets


EXAMPLES = re.findall(r"\bExamples?: (`floodmark .+)", (CHECKOUT / "docs/reference/commands.md").read_text(), re.M)


@pytest.mark.parametrize("said", EXAMPLES)
def test_examples_of_help_texts_can_be_said(said: str) -> None:
    for example in re.findall(r"`floodmark ([^`]+)`", said):
        _parsed(shlex.split(example))


def test_most_commands_have_an_example() -> None:
    assert len(EXAMPLES) >= 20


@pytest.mark.parametrize("one", snippets("bash"), ids=str)
def test_files_of_the_checkout_that_commands_name_are_there(one: Snippet) -> None:
    named = {word for words in commands(one.text) for word in words if re.match(r"(scripts|docker|tests)/", word)}
    assert [name for name in named if not (CHECKOUT / name).exists()] == []


def test_the_first_rule_of_the_readme_is_the_one_that_init_writes(tmp_path: Path) -> None:
    write(tmp_path)
    written = (tmp_path / "hello.yaml").read_text()
    shown = list(of_page(CHECKOUT / "README.md"))
    rule = next(one for one in shown if one.kind == "yaml")
    events = next(one for one in shown if "<<'EOF'" in one.text)
    assert yaml.safe_load(rule.text) == yaml.safe_load(written)
    assert [line for line in events.text.splitlines() if line and f"#   {line}\n" not in written] == [
        "floodmark run hello",
        'floodmark sql hello "SELECT * FROM hello ORDER BY minute"',
    ]


def _parsed(words: list[str]) -> None:
    """Raise what the command line would say; nothing is invoked."""
    command: Any = get_command(app)
    while hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, words
        command, words = command.commands[words[0]], words[1:]
    if not hasattr(command, "commands"):
        command.make_context("floodmark", list(words))


@pytest.mark.parametrize("one", snippets("sql"), ids=str)
def test_sql_can_be_folded(one: Snippet) -> None:
    analyse(one.text, STREAMS)


@pytest.mark.parametrize("page", [page for page in pages() if any(s.kind == "python" for s in of_page(page))], ids=str)
def test_python_compiles_and_a_class_passes_its_own_test(page: Path) -> None:
    texts = [one.text for one in of_page(page) if one.kind == "python"]
    names: dict[str, Any] = {"datetime": datetime, "UTC": UTC}
    for text in texts:
        code = compile(text, str(page), "exec")
        if "Harness" in "".join(texts):
            exec(code, names)


def test_the_callback_of_the_page_about_monitoring_sends_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[str] = []

    class Slack(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

    text, _poll = (one.text for one in of_page(CHECKOUT / "docs/guide/monitoring.md") if one.kind == "python")
    names: dict[str, Any] = {}
    exec(compile(text, "monitoring.md", "exec"), names)
    with HTTPServer(("127.0.0.1", 0), Slack) as server:
        monkeypatch.setenv("SLACK_WEBHOOK", f"http://127.0.0.1:{server.server_port}")
        answering = Thread(target=server.handle_request)
        answering.start()
        task = SimpleNamespace(dag_id="rule.hello", task_id="run")
        names["page"]({"task_instance": task, "exception": ValueError("exit 3")})
        answering.join(10)
    assert got == ['{"text": "rule.hello run failed: exit 3"}']


@pytest.mark.parametrize("one", snippets("json"), ids=str)
def test_json_is_json(one: Snippet) -> None:
    json.loads(one.text)


@pytest.mark.parametrize(
    "one", [s for s in of_page(CHECKOUT / "docs" / "guide" / "handbook.md") if s.kind == "text"], ids=str
)
def test_what_the_handbook_quotes_is_what_the_code_says(one: Snippet) -> None:
    said = one.text.strip()
    assert any(pattern.fullmatch(said) for pattern in _messages()), f"no message of the code reads so: {said}"


def test_every_claim_of_the_comparison_leads_to_a_test_that_exists() -> None:
    text = (CHECKOUT / "docs" / "comparison.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(\.\./(tests/[^)#]+)#([^)]+)\)", text)
    assert len(links) > 20
    missing = [f"{path}#{name}" for path, name in links if name not in _tests_of(CHECKOUT / path)]
    assert not missing
    claims = [row for table in _tables(text) if table[0][1] == "Floodmark" for row in table[2:]]
    assert len(claims) > 40
    for feature, claim, *_ in claims:
        assert "](../tests/" in claim or claim == "\N{EN DASH}", feature


def _tables(text: str) -> Iterator[list[list[str]]]:
    """The cells of each table."""
    for lines in re.findall(r"(?:^\|.*\n)+", text, re.M):
        yield [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]


def _tests_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@cache
def _messages() -> tuple[re.Pattern[str], ...]:
    """Every text of some length in the code, whatever stands in its placeholders."""
    files = (CHECKOUT / "jobs" / "floodmark").rglob("*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    texts = [text for node in nodes for text in _texts(node)]
    return tuple(re.compile("".join(_parts(text)) + end, re.S) for text, end in texts if _length(text) > 25)


def _texts(node: ast.AST) -> Iterator[tuple[ast.JoinedStr, str]]:
    """Texts, and how they end in a message: `core.text.tablenames` frames the last argument of its functions."""
    if isinstance(node, ast.JoinedStr):
        yield node, ""
    elif isinstance(node, ast.Call) and re.match(r"about|.*\._gone$", ast.unparse(node.func)):
        last = node.args[-1]
        label = ast.JoinedStr([ast.FormattedValue(last, -1), ast.Constant(": ")])
        parts = last.values if isinstance(last, ast.JoinedStr) else [last]
        yield ast.JoinedStr([*label.values, *parts]), r"(?:\. Table: \S+)?"


def _parts(text: ast.JoinedStr) -> Iterator[str]:
    for part in text.values:
        yield re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*?"


def _length(text: ast.JoinedStr) -> int:
    return sum(len(str(part.value)) for part in text.values if isinstance(part, ast.Constant))


def test_the_table_of_positions_is_shown_as_the_relay_creates_it() -> None:
    shown = re.findall(
        r"CREATE TABLE public\.floodmark_position [^;]+", (CHECKOUT / "docs/reference/targets.md").read_text()
    )
    made = positions_table("public").replace('"', "").replace("IF NOT EXISTS ", "")
    assert [" ".join(one.split()) for one in shown] == [made]
