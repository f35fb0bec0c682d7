"""Pages that are made from the code, and a hook of MkDocs that adds every page to the navigation.

    python scripts/site_pages.py     writes those of docs/reference: `make pages`

They are in git, so that a repository view shows them: the commands, from the command line's own parser; a rule file's
keys, from its JSON Schema; and error messages with the mistakes that cause them, from the tests.
tests/unit/test_made_pages.py holds them to the code. Only the site has the tests that the comparison links to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

CHECKOUT = Path(__file__).parents[1]
DOCS = CHECKOUT / "docs"
# Sections to which the other pages of a folder, those that are not in mkdocs.yml, are appended.
FOLDERS = {
    "Start here": "start",
    "Concepts": "concepts",
    "Write rules": "guide",
    "Reference": "reference",
    "Contributing": "adr",
}
# The search shows these after every other page: they are for developers of Floodmark.
FOUND_LAST = ("adr/", "evidence.md", "reference/faults.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add every page to the navigation."""
    listed = set(_pages(config.nav))
    for section in config.nav or []:
        for title, pages in section.items():
            folder = FOLDERS.get(title)
            if folder is not None:
                found = (path.relative_to(DOCS).as_posix() for path in sorted((DOCS / folder).glob("*.md")))
                pages.extend({_title(page): page} for page in found if page not in listed)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "evidence.md", content=evidence()))
    return files


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for child in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _pages(child)


def _title(page: str) -> str:
    heading = next(
        line for line in (DOCS / page).read_text(encoding="utf-8").splitlines() if line.startswith("# ")
    ).replace("`", "")
    number = re.match(r"adr/(\d{4})-", page)
    return f"{number[1]} {heading[2:]}" if number else heading[2:]


# --- The commands


def commands() -> str:
    """Each command with its arguments and options, as `--help` has them."""
    from typer.main import get_command

    from floodmark.cli.app import app

    text = "# Commands and options\n\nThis page lists all commands, arguments and options, as `floodmark COMMAND "
    text += "--help` prints them. "
    text += "An overview, common options and exit codes are on the page [command line](cli.md).\n\n"
    text += f"{_note('the parser of the command line')}\n\n"
    sections = "".join(_command(get_command(app), "floodmark"))
    return text + _contents(re.findall("^## (.+)$", sections, re.M)) + sections


def _command(command: Any, name: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for word, child in command.commands.items():
            yield from _command(child, f"{name} {word}")
        return
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and param.name != "help"]
    usage = " ".join([name, *(_metavar(param) for param in arguments), "[OPTIONS]"])
    yield f"\n## {name}\n\n```text\n{usage}\n```\n\n{command.help.strip()}\n\n"
    yield _table(["argument, option", "default", "environment", "meaning"], map(_param, [*arguments, *options]))


def _param(param: Any) -> list[str]:
    option = param.param_type_name == "option"
    name = " ".join([*param.opts, *([] if param.is_flag else [_metavar(param)])]) if option else _metavar(param)
    default = param.show_default if isinstance(param.show_default, str) else param.default
    shown = "" if default in (None, False, ()) or callable(default) else f"`{default}`"
    return [f"`{name}`", shown, f"`{param.envvar}`" if param.envvar else "", param.help or ""]


def _metavar(param: Any) -> str:
    """The placeholder of a parameter's value; if it has none, the option's name, as in `--home HOME`."""
    return str(param.metavar or param.opts[0].lstrip("-").upper())


def _table(head: list[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return str(text).replace("\n", " ").replace("|", "\\|")


# --- A rule file's keys


def rule_file() -> str:
    """Each mapping of a rule file with its keys."""
    from floodmark.core.rules.rule import json_schema

    schema = json_schema()
    text = "# Rule file: all keys\n\nA rule file is YAML. Editors complete and check it with the JSON Schema that "
    text += "`floodmark validate --schema` prints.\n\n"
    text += "Any text may contain `${NAME}` or `${NAME:-default}`, which is replaced by a variable of the environment. "
    text += "Write `$${` for a literal `${`.\n\n"
    text += f"{_note('that JSON Schema')}\n\n{VALUES}"
    models = {"WrittenRule": schema, **schema["$defs"]}
    models |= {found["title"]: found for model in list(models.values()) for found in _kinds(model)}
    for model in [*PLACES, *(one for one in models if one not in PLACES)]:
        found = models[model]
        more = f"See {ABOUT[model]}.\n\n" if model in ABOUT else ""
        text += f"\n## {_place(model)}\n\n{more}" + _table(["key", "value", "default", "meaning"], _keys(found))
    return text


PLACES = {
    "WrittenRule": "The file itself",
    "WrittenStream": "streams: NAME",
    "WrittenFiles": "files",
    "WrittenIceberg": "iceberg",
    "WrittenPostgres": "postgres",
    "WrittenEventTime": "event_time, with an expression",
    "WrittenStart": "start",
    "WrittenDistinct": "distinct",
    "WrittenLookup": "lookups: NAME",
    "WrittenAmend": "late, with a duration",
    "WrittenEpoch": "epoch",
    "WrittenSink": "sinks: one of the list",
    "WrittenTopic": "kafka, of a sink",
    "WrittenFolder": "files, of a sink",
    "WrittenOwn": "python, of a sink",
    "WrittenAssets": "schedule, by assets",
    "WrittenSpark": "spark",
    "WrittenAirflow": "airflow",
}


# The pages that explain a mapping.
ABOUT = {
    "WrittenRule": "[your first rule](../guide/rules.md)",
    "WrittenStream": "[SQL](sql.md) and [chaining rules](chains.md)",
    "WrittenFiles": "[files as a source](files.md)",
    "WrittenIceberg": "[Iceberg as a source](iceberg-source.md) and [as a target](iceberg.md)",
    "WrittenPostgres": "[PostgreSQL as a source](postgres-source.md)",
    "WrittenDistinct": "[SQL](sql.md)",
    "WrittenLanding": "[landing](landing.md)",
    "WrittenLookup": "[SQL](sql.md)",
    "WrittenAmend": "[SQL](sql.md)",
    "WrittenEpoch": "[epochs](epochs.md)",
    "WrittenSink": "[sinks](sinks.md)",
    "WrittenTopic": "[Kafka as a target](kafka-target.md)",
    "WrittenFolder": "[files as a target](files-target.md)",
    "WrittenOwn": "[a target of one's own](own-target.md)",
    "WrittenAssets": "[schedules](../guide/airflow-scheduling.md)",
    "WrittenSpark": "[sizing](../guide/sizing.md)",
    "WrittenAirflow": "[retries](../guide/airflow-scheduling.md#retries-and-timeouts)",
    "WrittenCleanUp": "[table maintenance](upkeep.md)",
    "WrittenExpectation": "[data quality checks](expect.md)",
    "WrittenFreshness": "[freshness](freshness.md)",
}
VALUES = """\
| value | how to write it |
| --- | --- |
| a duration | `30 seconds`, `5 minutes`, `1 hour 30 minutes`, `7 days` |
| a share | `0.1 %` |
| text | any YAML text; SQL over several lines after `sql: \\|` |
| a mapping | keys of its own, listed below |

In the column "default", an empty cell means that the key may be left out.
"""


def _kinds(model: dict[str, Any]) -> list[dict[str, Any]]:
    """The mappings of kinds of sources and sinks, which the schema holds at their keys."""
    values = (value for one in model.get("properties", {}).values() for value in one.get("anyOf", ()))
    return [value for value in values if "properties" in value]


def _keys(found: dict[str, Any]) -> Iterator[list[str]]:
    needed = found.get("required", [])
    for key, one in found["properties"].items():
        default = "required" if key in needed else _shown(one.get("default"))
        yield [f"`{key}`", _holds(one), default, one.get("description", "")]


def _shown(default: Any) -> str:
    if default in (None, {}, [], "") or isinstance(default, dict):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _holds(one: dict[str, Any]) -> str:
    if "anyOf" in one:
        return ", ".join(dict.fromkeys(_holds(kind) for kind in one["anyOf"] if kind.get("type") != "null"))
    if "$ref" in one:
        place = _place(one["$ref"].rpartition("/")[2])
        return f"a mapping ([{place}](#{_anchor(place)}))"
    if "enum" in one or "const" in one:
        return ", ".join(f"`{value}`" for value in one.get("enum", [one.get("const")]))
    if one.get("type") == "array":
        return f"a list of {_holds(one['items']).removeprefix('a ').replace('mapping', 'mappings', 1)}"
    if "properties" in one:
        return _holds({"$ref": one["title"]})
    if one.get("type") == "object":
        inside = one.get("additionalProperties")
        return f"names, each with {_holds(inside)}" if isinstance(inside, dict) else "names, each with a value"
    if "examples" in one:
        return "a share" if any("%" in str(example) for example in one["examples"]) else "a duration"
    return {"string": "text", "boolean": "`true`, `false`"}.get(str(one.get("type")), "a whole number")


def _place(model: str) -> str:
    """The place of a mapping in a file; for one that is not listed above, its name."""
    return PLACES.get(model, model.removeprefix("Written").lower())


def _anchor(place: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", place.lower()).strip("-")


# --- Mistakes


def messages() -> str:
    """People's mistakes, each with its error message."""
    text = "# Error messages, by mistake\n\nThis page lists mistakes in rule files, tables, arguments and settings, "
    text += "each with its error message, word for word. "
    text += "[Troubleshooting](../guide/handbook.md) covers rules that stop later.\n\n"
    text += f"{_note('the tests, which check every word')}\n\n"
    text += "Lines with `+` are the mistake in this rule:\n\n"
    folder = CHECKOUT / "tests" / "mistakes"
    text += _fenced("yaml", (folder / "counted.rule").read_text(encoding="utf-8"))
    files = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))]
    sections = {file.splitlines()[0].removeprefix("# ").partition(".")[0]: yaml.safe_load(file) for file in files}
    text += _contents(sections) + "\n"
    for title, mistakes in sections.items():
        text += f"## {title}\n\n" + "".join(map(_mistake, mistakes))
    return f"{text.rstrip()}\n"


def _mistake(one: dict[str, Any]) -> str:
    wrong = "".join(f"+{line}\n" for new in one.get("replace", {}).values() for line in new.rstrip("\n").split("\n"))
    shown = [f"### {one['mistake'][:1].upper()}{one['mistake'][1:]}\n\n", _fenced("diff", wrong) if wrong else ""]
    shown += [f"`{name}`:\n\n{_fenced('text', text)}" for name, text in one.get("files", {}).items()]
    command = f"$ floodmark {one.get('run', 'validate')}\n"
    return "".join([*shown, _fenced("text", f"{command}{one['says']}")])


def _contents(titles: Iterable[str]) -> str:
    """Links to the sections of a page."""
    return "".join(f"- [{title}](#{_anchor(title)})\n" for title in titles)


def _note(source: str) -> str:
    return f"<!-- Made by `make pages` from {source}: do not edit. -->"


def _fenced(kind: str, text: str) -> str:
    return f"```{kind}\n{text.rstrip()}\n```\n\n"


# --- Tests that a page links to

_TO_TEST = re.compile(r"\]\((?:\.\./)+(tests/[\w/]+\.py)#(\w+)\)")


def evidence() -> str:
    """The text of the tests that the comparison links to."""
    text = "# The tests that show it\n\nMade from the tests to which the [comparison](comparison.md) leads.\n"
    found = _TO_TEST.findall((DOCS / "comparison.md").read_text(encoding="utf-8"))
    for path, name in dict.fromkeys(found):
        source = (CHECKOUT / path).read_text(encoding="utf-8")
        text += f"\n## {name}\n\n`{path}`\n\n" + _fenced("python", _function(source, name))
    return text


def _function(source: str, name: str) -> str:
    """The text of a function, decorators included."""
    tree = ast.parse(source)
    node = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """On the site, link tests to the page that shows them. The search puts pages for developers last."""
    if page.file.src_path.startswith(FOUND_LAST):
        page.meta["search"] = {"boost": 1e-6}  # a word in a title counts 1,000 times as much as one in a text
    return _TO_TEST.sub(r"](evidence.md#\2)", markdown) if page.file.src_path == "comparison.md" else markdown


MADE: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands,
    "reference/rule-file.md": rule_file,
    "reference/messages.md": messages,
}


def write() -> None:
    """Write the pages that are in git."""
    for path, make in MADE.items():
        (DOCS / path).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write()
