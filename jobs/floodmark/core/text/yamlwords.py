"""Rewrites PyYAML's errors in terms that a rule's author knows."""

from __future__ import annotations

import re

_INDENT = "indent it by spaces, as its neighbours"
# The parser's message -> what was expected and found, and what to do. `{0}`: the first group.
_MESSAGES = (
    (r"found character '\\t'.*", "expected spaces, found a tab: YAML is indented by spaces"),
    (
        r"found character '(.)' that cannot start any token",
        "expected a value, found one that begins with {0}, which no plain text may: put it in quotes",
    ),
    (
        r"(?:expected alphabetic or numeric character, but found|while scanning an alias).*",
        "expected a value, found * or & before what is no name: put it in quotes, such as '*/5 * * * *'",
    ),
    (
        r"mapping values are not allowed here",
        f"expected a value, found another `key:`. If this line is a key of its own, {_INDENT}; if the colon belongs to "
        "a text, put the text in quotes",
    ),
    (
        r"could not find expected ':'",
        "expected `key: value`, found a line without it: put a space after the colon; a text of several lines begins "
        "with `key: |` and is indented",
    ),
    (
        r"expected <block end>, but found '?(.+?)'?",
        f"expected the next key, found what does not line up with those before it: {_INDENT}, and close quotes where "
        "they should end",
    ),
    (
        r"found unexpected end of stream",
        "expected the quotation mark that closes a text, found the end of the file: close it",
    ),
    (
        r"but found another document",
        "expected one rule, found another document (`---`): give it a file of its own",
    ),
    (
        r"expected ',' or '(.)', but got .*",
        "expected a comma or {0}, found something else: close the bracket, and separate what stands in it by commas",
    ),
    (
        r"did not find expected .*|expected the node content, but found .*",
        "expected a value, found the end of a list or mapping: write the value, or take the comma or dash away",
    ),
)


# A text with variables, up to where a flow list or mapping would continue without their braces.
_WITH_VARIABLES = re.compile(r"(?:\$\{[^{}\s,]*\}|[^\s,\[\]{}])*")


def parser_message(problem: str, text: str = "", index: int = 0) -> str:
    """The message for the parser's `problem`, or `problem` itself if there is no other wording.

    The parser stopped in the rule file's `text` before the character at `index`.
    """
    bare = _bare_variable(text, index)
    if bare is not None:
        return (
            f"expected quotes round a text with ${{…}} inside of {{…}} or […], found none: write '{bare}', for YAML "
            "takes a bare { as the beginning of a mapping"
        )
    for pattern, words in _MESSAGES:
        match = re.fullmatch(pattern, problem)
        if match:
            return words.format(*match.groups())
    return f"expected YAML: {problem}"


def _bare_variable(text: str, index: int) -> str | None:
    """The unquoted text whose variable `${NAME}` the parser read as a mapping; None if that is not the problem."""
    if text[index - 1 : index + 1] != "${" or index == 0:
        return None
    before = re.search(r"[^\s,\[\]{}]*$", text[:index])
    start = before.start() if before else index
    found = _WITH_VARIABLES.match(text, start)
    return found.group() if found and found.end() > index else None
