"""Splits a rule's SQL into words by Spark's own lexical rules, each with its place, SELECT and clause.

sqlglot's tokens are not enough: its comments and strings differ from Spark's in corner cases (in Spark, a comment that
ends in a backslash continues). Text that one of them reads as a comment must never be a clause for the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from floodmark.errors import SqlAt

MAX_LENGTH = 100_000

_PATTERNS = (
    ("space", r"\s+"),
    ("comment", r"--(?:\\\n|[^\r\n])*"),
    ("hint", r"/\*\+"),
    ("block", r"/\*"),
    ("raw", r"[rR]'[^']*'|[rR]\"[^\"]*\""),
    ("hex", r"[xX]'[^']*'"),
    ("string", r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\""),
    ("quoted", r"`(?:[^`]|``)*`"),
    ("number", r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:BD|bd|[LSYFDlsyfd])?(?!\w)"),
    ("word", r"\w+"),
    ("operator", r"<=>|>>>|->|=>|::|<=|>=|<>|!=|==|\|\||\|>|<<|>>|[-()\[\],.+*/%&|^~!=<>;]"),
)
_LEXER = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS), re.DOTALL)
_BRACKETS = re.compile(r"/\*\+?|\*/")
_CLAUSES = frozenset({"from", "where", "group", "having"})


@dataclass(frozen=True)
class Word:
    """One token.

    name: lower case, without backquotes. end: exclusive. select: the number of the enclosing SELECT in text order, -1
    outside of any. clause: select, from, where, group or having.
    """

    kind: str
    text: str
    name: str
    start: int
    end: int
    select: int = -1
    clause: str = ""

    def refuse(self, sql: str, problem: str) -> SqlAt:
        """The error to raise at this token."""
        return refuse_at(sql, self.start, problem)


def refuse_at(sql: str, offset: int, problem: str) -> SqlAt:
    """The error to raise at a character offset."""
    return SqlAt(problem, *place_of(sql, offset))


def place_of(sql: str, offset: int) -> tuple[int, int]:
    """The line and column of a character offset, counted from 1."""
    line_start = sql.rfind("\n", 0, offset) + 1
    return sql.count("\n", 0, offset) + 1, offset - line_start + 1


def quoted(name: str) -> str:
    """The name of a column or relation, quoted as SQL."""
    return "`" + name.replace("`", "``") + "`"


def words_of(sql: str) -> tuple[Word, ...]:
    """All tokens except comments and space.

    Raises SqlAt for tokens that Spark's lexer does not know or a rule may not have.
    """
    if len(sql) > MAX_LENGTH:
        raise SqlAt(f"expected at most {MAX_LENGTH} characters of SQL, found {len(sql)}", 1, 1)
    return tuple(_with_clauses(list(_scan(sql))))


def _scan(sql: str) -> Iterator[Word]:
    at = 0
    while at < len(sql):
        match = _LEXER.match(sql, at)
        if match is None:
            raise refuse_at(sql, at, _strange(sql[at]))
        kind, text, at = str(match.lastgroup), match.group(), match.end()
        if kind == "hint":
            raise refuse_at(sql, match.start(), "a hint /*+ ... */ is not allowed; use `spark: {conf: ...}`")
        if kind == "comment" and "\\\n" in text:
            raise refuse_at(
                sql, match.start(), "a comment ends in a backslash, which makes Spark skip the next line too"
            )
        if kind == "block":
            at = _comment_end(sql, match.start())
        elif kind not in ("space", "comment"):
            _refuse_substitution(sql, match.start(), text)
            yield Word(kind, text, _name(kind, text), match.start(), at)


def _strange(char: str) -> str:
    if char in "'\"`":
        return f"a {char} is not closed: write another {char} where it should end"
    if char == ":":
        return "a colon is not allowed: no parameters (:name) and no paths (a:b); use get_json_object or from_json"
    return f"expected SQL, found the character {char!r}"


def _comment_end(sql: str, start: int) -> int:
    """The end of a bracketed comment. Spark nests comments; a hint starts none."""
    depth = 0
    for match in _BRACKETS.finditer(sql, start):
        if match.group() == "/*+":
            raise refuse_at(sql, match.start(), "/*+ inside a comment: Spark would end the comment at the next */")
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    raise refuse_at(sql, start, "a comment /* is not closed")


def _refuse_substitution(sql: str, start: int, text: str) -> None:
    # Before it parses the SQL, Spark would replace it by a setting, an environment variable or nothing.
    if "${" in text:
        raise refuse_at(sql, start + text.index("${"), "the characters ${ are not allowed: Spark would substitute them")


def _name(kind: str, text: str) -> str:
    return (text[1:-1].replace("``", "`") if kind == "quoted" else text).lower()


def _with_clauses(words: list[Word]) -> Iterator[Word]:
    """The words with their SELECT and clause: one frame for each open parenthesis; inner frames inherit."""
    frames: list[tuple[int, str]] = [(-1, "")]
    count = 0
    for i, word in enumerate(words):
        if word.text == ")" and len(frames) > 1:
            frames.pop()
        if _opens_select(words, i):
            frames[-1] = (count, "select")
            count += 1
        elif ends_select(words, i):
            frames[-1] = frames[-2] if len(frames) > 1 else (-1, "")
        elif _owns_select(frames) and _opens_clause(words, i):
            frames[-1] = (frames[-1][0], word.name)
        yield Word(word.kind, word.text, word.name, word.start, word.end, *frames[-1])
        if word.text == "(":
            frames.append(frames[-1])


def _owns_select(frames: list[tuple[int, str]]) -> bool:
    """Whether the innermost frame has a SELECT of its own; in `extract(year FROM x)` it does not."""
    return frames[-1][0] >= 0 and (len(frames) == 1 or frames[-1][0] != frames[-2][0])


def _before(words: Sequence[Word], i: int) -> str:
    return words[i - 1].name if i else ""


def _after(words: list[Word], i: int) -> str:
    return words[i + 1].name if i + 1 < len(words) else ""


def _opens_select(words: list[Word], i: int) -> bool:
    return words[i].kind == "word" and words[i].name == "select" and _before(words, i) not in (".", "as")


def ends_select(words: Sequence[Word], i: int) -> bool:
    """Whether a SELECT ends before token `i`: at a set operation or a semicolon."""
    if words[i].text == ";":
        return True
    if words[i].kind != "word" or words[i].name not in ("union", "intersect", "except", "minus"):
        return False
    return _before(words, i) not in (".", "as", "*")  # `* EXCEPT (...)` is no set operation


def _opens_clause(words: list[Word], i: int) -> bool:
    word, before = words[i], _before(words, i)
    if word.kind != "word" or word.name not in _CLAUSES or before in (".", "as"):
        return False
    if word.name == "group":
        return _after(words, i) == "by"
    return not (word.name == "from" and before == "distinct" and i > 1 and words[i - 2].name in ("is", "not"))
