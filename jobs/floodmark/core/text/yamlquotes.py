"""Finds the unquoted value at which the YAML parser stopped, and writes it in quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from floodmark.core.text.secrets import may_hold

_LONGEST = 80  # characters of a value that a message repeats
_ENTRY = re.compile(r"\s*(?:- +)*(?P<key>[A-Za-z_][\w.-]*\s*:[ \t]+)?(?P<value>[^\s#].*?)\s*(?: #.*)?$")
_TEMPLATE = re.compile(r"[^\s,\[\]{}'\"]*\{\{[^{}]*\}\}[^\s,\[\]{}'\"]*")
# A text with variables, up to where a flow list or mapping would continue without their braces.
_WITH_VARIABLES = re.compile(r"(?:\$\{[^{}\s,]*\}|[^\s,\[\]{}])*")
_CLOSING = {"[": "]", "{": "}", "(": ")"}


@dataclass(frozen=True)
class Bare:
    """An unquoted value. `what`: the reason why YAML does not read it as text, as an attribute of "a value"."""

    text: str
    what: str

    @property
    def message(self) -> str:
        if may_hold(self.text) or len(self.text) > _LONGEST:
            return f"expected quotes around a value {self.what}, found none: put it in quotes"
        return f"expected quotes around a value {self.what}, found {self.text}: write {quoted(self.text)}"


def quoted(text: str) -> str:
    """The text as a YAML value in quotes; single quotes, unless the text contains them."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":  # its quotes were meant as YAML's
        text = text[1:-1]
    if "'" in text and not re.search(r'["\\]', text):
        return f'"{text}"'
    return "'" + text.replace("'", "''") + "'"


def bare_value(text: str, index: int) -> Bare | None:
    """The unquoted value in which the parser stopped; None if missing quotes do not explain it.

    The parser stopped in the rule file's `text` before the character at `index`.
    """
    begin = text.rfind("\n", 0, index) + 1
    line, at = text[begin:].split("\n", 1)[0].rstrip("\r\0"), index - begin
    entry = _ENTRY.match(line)
    if entry is None or at < entry.start("value"):
        return None
    value, start = entry["value"], entry.start("value")
    return _variable(line, at) or _template(line, start, at) or _of_block(entry) or _of_flow(value, at - start)


def _variable(line: str, at: int) -> Bare | None:
    """A value whose variable `${NAME}` was read as a mapping."""
    if at == 0 or line[at - 1 : at + 1] != "${":
        return None
    before = re.search(r"[^\s,\[\]{}]*$", line[:at])
    found = _WITH_VARIABLES.match(line, before.start() if before else at)
    if found is None or found.end() <= at:
        return None
    return Bare(found.group(), "with ${…} inside {…} or […]")


def _template(line: str, start: int, at: int) -> Bare | None:
    """A value with `{{ … }}`, which rule files do not replace."""
    found = next((one for one in _TEMPLATE.finditer(line, start) if one.start() <= at <= one.end()), None)
    return found and Bare(found.group(), "with {{…}} (a rule file has no templates; ${NAME} is a variable)")


def _of_block(entry: re.Match[str]) -> Bare | None:
    """A value that takes the rest of its line."""
    value = entry["value"]
    end = _closed(value)
    if value[0] in "[{":
        return None if end in (None, len(value) - 1) else Bare(value, f"with text after its {value[end or 0]}")
    if (found := _odd_start(value)) or (value[0] in "'\"" and end not in (None, len(value) - 1)):
        return found or Bare(value, "with text after its closing quotation mark")
    if re.match(r"[|>][+-]?\d?[+-]?\s*\S", value):
        return Bare(value, f"that starts with {value[0]}")
    has_colon = ": " in value or value.endswith(":")
    return Bare(value, "with a colon before a space or the line's end") if entry["key"] and has_colon else None


def _odd_start(value: str) -> Bare | None:
    if value[0] in "@`%*&!" or re.match(r"[-?] ", value):
        return Bare(value, f"that starts with {value[0]}")
    return None


def _of_flow(value: str, at: int) -> Bare | None:
    """A value inside of {…} or […], of which `value` is the whole."""
    if value[0] not in "[{":
        return None
    start = _entry_start(value, at)
    entry = value[start : _entry_end(value, start)].strip()
    if not entry or entry[0] in "[{'\"":
        return None
    if re.search(r"[\[{]", entry):
        return Bare(entry, "with brackets inside {…} or […]")
    return _odd_start(entry) or (Bare(entry, "with a colon before a space") if ": " in entry else None)


def _entry_start(value: str, at: int) -> int:
    """Where the entry of a flow list or mapping that contains the place `at` starts."""
    start = place = 0
    at = min(at, len(value))  # a bracket that is never closed may have white space behind it
    while place < at:
        empty = not value[start:place].strip()
        if value[place] in "'\"" and empty:
            place = _end_of_quotes(value, place) or at
        elif value[place] in ",]}" or (value[place] in "[{" and empty) or value[place : place + 2] == ": ":
            start = place + 1
        place += 1
    return start


def _entry_end(value: str, start: int) -> int:
    """Where the entry ends, if its own brackets are text: before a comma or a closing bracket outside of these."""
    depth = 0
    for place in range(start, len(value)):
        depth += value[place] in _CLOSING
        if depth == 0 and value[place] in ",]}":
            return place
        depth -= value[place] in _CLOSING.values()
    return len(value)


def _closed(value: str) -> int | None:
    """Where the quotes or brackets end with which the value starts; None if they do not end, or there are none."""
    if value[0] in "'\"":
        return _end_of_quotes(value, 0)
    depth = 0
    for place, one in enumerate(value):
        depth += (one in "[{") - (one in "]}")
        if depth == 0:
            return place if place else None
    return None


def _end_of_quotes(value: str, start: int) -> int | None:
    end = value.find(value[start], start + 1)
    return None if end < 0 else end
