"""Rewrites PyYAML's errors in terms that a rule's author knows."""

from __future__ import annotations

import re

from floodmark.core.text.yamlquotes import bare_value

_INDENT = "indent it with spaces like the lines around it"
# The parser's message -> what was expected and found, and what to do. `{0}`: the first group.
_MESSAGES = (
    (
        r"found character '\\t'.*",
        "expected spaces, found a tab: replace each tab in this line by spaces",
    ),
    (
        r"found character '(.)' that cannot start any token",
        "expected a value, found one that starts with {0}, which needs quotes: put it in quotes",
    ),
    (
        r"(?:expected alphabetic or numeric character, but found|while scanning an alias).*",
        "expected a value, found * or & before something that is not a name: put the value in quotes, such as '*/5 * "
        "* * *'",
    ),
    (
        r"mapping values are not allowed here",
        f"expected a value, found another `key:`. If this line is a key of its own, {_INDENT}; if the colon is part "
        "of a value, put the value in quotes",
    ),
    (
        r"could not find expected ':'",
        "expected `key: value`, found a line without it: put a space after the colon; a value of several lines "
        "starts with `key: |` and is indented",
    ),
    (
        r"expected <block end>, but found '?(.+?)'?",
        f"expected the next key, found a line that does not line up with the keys before it: {_INDENT}, and close "
        "quotes where they should end",
    ),
    (
        r"found unexpected end of stream",
        "expected a closing quotation mark, found the end of the file: add it",
    ),
    (
        r"but found another document",
        "expected one rule, found another document (`---`): give it a file of its own",
    ),
    (
        r"expected ',' or '(.)', but got .*",
        "expected a comma or {0}, found something else: close the bracket, and separate its entries with commas",
    ),
    (
        r"did not find expected .*|expected the node content, but found .*",
        "expected a value, found the end of a list or mapping: write the value, or remove the comma or dash",
    ),
)


def parser_message(problem: str, text: str = "", index: int = 0) -> str:
    """The message for the parser's `problem`, or `problem` itself if there is no other wording.

    The parser stopped in the rule file's `text` before the character at `index`.
    """
    bare = bare_value(text, index)
    if bare is not None:
        return bare.message
    for pattern, words in _MESSAGES:
        match = re.fullmatch(pattern, problem)
        if match:
            return words.format(*match.groups())
    return f"expected YAML: {problem}"
