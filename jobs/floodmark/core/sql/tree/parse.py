"""Parses SQL text into a syntax tree by sqlglot, with support for Spark's window function."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from floodmark.core.sql.words.functions import closing, is_call
from floodmark.core.sql.words.lexis import Word, ends_select, refuse_at
from floodmark.errors import SqlAt

_TYPES = SparkParser.TYPE_TOKENS - {TokenType.INTERVAL}


class _Parser(SparkParser):
    """Parses Spark's syntax but knows no function by name.

    `check_functions` checks functions by their names in the text; sqlglot's own argument counts would only interfere.
    """

    FUNCTIONS: ClassVar[dict[str, Any]] = {}

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        # As a value, `date(` is a call. Looking for a type first would double the time for each level of nesting.
        if self._next and self._next.token_type == TokenType.L_PAREN and self._curr.token_type in _TYPES:
            return self._parse_column()
        return super()._parse_type(parse_interval, fallback_to_identifier)


# Words that start a query in Spark, but not (in some places) in sqlglot.
_QUERIES = {
    "from": "FROM before SELECT is not allowed; write SELECT ... FROM",
    "table": "TABLE as a query is not allowed; write a JOIN with a stream or lookup. If it is a column, put its name "
    "in backquotes",
}
_JOINS = frozenset("anti cross full inner join left natural outer right semi".split())
_COLOURS = re.compile(r"\x1b\[\d*m")


def parse(sql: str, words: Sequence[Word]) -> exp.Expr:
    """The single query in `sql`, as a tree. Raises SqlAt."""
    _check_words(sql, words)
    return _parsed(sql, words)


def parse_expression(sql: str, words: Sequence[Word]) -> exp.Expr:
    """The single expression in `sql`, as a tree. Raises SqlAt."""
    if not words:
        raise SqlAt("expected an expression, found nothing", 1, 1)
    _check_no_query(sql, words)
    # Parsed as a select list, so that an alias, a comma or a further clause shows in the tree.
    prefix = "SELECT "
    tree = _parsed(sql, words, prefix)
    plain = isinstance(tree, exp.Select) and not any(v for k, v in tree.args.items() if k != "expressions")
    if not plain or len(tree.expressions) != 1 or isinstance(tree.expressions[0], (exp.Alias, exp.Star)):
        raise words[0].refuse(sql, f"expected one expression, found {sql.strip()[:60]!r}")
    expression: exp.Expr = tree.expressions[0]
    return expression


def _check_no_query(sql: str, words: Sequence[Word]) -> None:
    """Refuse queries that do not start with SELECT: sqlglot reads `(TABLE name)` as a column and its alias."""
    for i, word in enumerate(words):
        if word.name in _QUERIES and word.kind == "word" and _may_be_query(words, i):
            raise word.refuse(sql, _QUERIES[word.name])


def _may_be_query(words: Sequence[Word], i: int) -> bool:
    """Whether Spark may read a query from token `i` on: in parentheses, or after a set operation."""
    before = i - 2 if i > 1 and words[i - 1].name in ("all", "distinct") and ends_select(words, i - 2) else i - 1
    return before >= 0 and (words[before].text == "(" or ends_select(words, before))


def _check_words(sql: str, words: Sequence[Word]) -> None:
    if not words:
        raise SqlAt("expected a SELECT, found nothing", 1, 1)
    first = next((word for word in words if word.text != "("), words[0])
    if first.name not in ("select", "with"):
        raise first.refuse(sql, f"expected SELECT or WITH, found {first.text}: a rule's SQL is one SELECT")
    _check_no_query(sql, words)
    for i, word in enumerate(words):
        if word.text == ";" and i + 1 < len(words):
            raise words[i + 1].refuse(sql, "a second statement: a rule's SQL is one SELECT")
        if word.text == "|>":
            raise word.refuse(sql, "the pipe syntax |> is not allowed; write SELECT ... FROM")
        if word.text == "," and _ends_list(words, i + 1):
            # Spark would read FROM as a column, and the stream's name as that column's alias.
            raise word.refuse(sql, "a comma with nothing after it")
        if _names_relation(words, i):
            raise word.refuse(sql, f"{word.text} where a stream's name is expected: Spark reads it as that name")
        if word.name == "where" and word.clause == "where" and _is_name_list(words, i + 1):
            # Spark reads `FROM t WHERE (a)` as table t with alias WHERE and column a.
            raise word.refuse(sql, "WHERE (name): Spark reads it as an alias; leave the parentheses out")
        if word.name == "collate" and word.kind == "word" and not (i and words[i - 1].text == "."):
            raise word.refuse(sql, "COLLATE: row order would decide which of several equal strings is shown")
        if word.name == "interval" and word.kind == "word" and not _is_interval_or_name(words, i):
            raise word.refuse(sql, "INTERVAL: expected a number or text after it; put a column's name in backquotes")


def _ends_list(words: Sequence[Word], i: int) -> bool:
    return i == len(words) or words[i].text in (")", ";") or words[i].name == words[i].clause != ""


def _names_relation(words: Sequence[Word], i: int) -> bool:
    """Whether a join keyword is where a relation starts: only sqlglot reads `FROM a, JOIN b` as `a JOIN b`."""
    if words[i].kind != "word" or words[i].name not in _JOINS or words[i].clause != "from" or i == 0:
        return False
    calls = is_call(words, i) and words[i + 2].name != "select"  # left(x, 2) as an argument of another call
    return not calls and (words[i - 1].text == "," or words[i - 1].name == "from")


def _is_name_list(words: Sequence[Word], i: int) -> bool:
    """Whether `( name, name )` starts at token `i`."""
    if i >= len(words) or words[i].text != "(":
        return False
    inside = words[i + 1 : closing(words, i)]
    names, commas = inside[::2], inside[1::2]
    return all(word.kind in ("word", "quoted") for word in names) and all(word.text == "," for word in commas)


def _is_interval_or_name(words: Sequence[Word], i: int) -> bool:
    # A column of that name before the HAVING that `bounded` adds would read as the start of an interval.
    after = words[i + 1] if i + 1 < len(words) else None
    literal = after is not None and (after.kind in ("string", "raw", "number") or after.text in ("-", "+"))
    return literal or (i > 0 and words[i - 1].name in (".", "as"))


def _parsed(sql: str, words: Sequence[Word], prefix: str = "") -> exp.Expr:
    dialect = Spark()
    try:
        tokens = dialect.tokenize(prefix + sql)
        _check_same_words(sql, words, tokens, len(prefix))
        statements = _Parser(dialect=dialect).parse(_without_window_clauses(tokens), prefix + sql)
    except ParseError as error:
        raise _placed(sql, words, error, len(prefix)) from None
    except (SqlglotError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SqlAt(f"cannot be parsed: {reason}", 1, 1) from None
    # sqlglot returns a comment after the closing semicolon as a statement of its own.
    trees = [tree for tree in statements if tree is not None and not isinstance(tree, exp.Semicolon)]
    if len(trees) != 1:
        raise SqlAt(f"expected one SELECT, found {len(trees)} statements", 1, 1)
    return trees[0]


def _check_same_words(sql: str, words: Sequence[Word], tokens: Sequence[Token], shift: int) -> None:
    """Refuse text in which sqlglot sees other strings or quoted names than Spark does."""
    kinds = (TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER)
    texts = [word for word in words if word.kind in ("string", "raw", "quoted")]
    seen = {token.start - shift: token.end - shift for token in tokens if token.token_type in kinds}
    for word in texts:
        if word.start not in seen:
            raise word.refuse(sql, f"cannot tell where {word.text[:40]} starts and ends; write it in another way")
    starts = [word.start for word in texts]
    for start, end in sorted(seen.items()):
        around = bisect_right(starts, start) - 1
        if around < 0 or end >= texts[around].end:
            raise refuse_at(sql, start, "cannot tell whether this is a string; write it in another way")


def _without_window_clauses(tokens: list[Token]) -> list[Token]:
    """Make `window` an ordinary word where it starts no named-window clause.

    sqlglot reads every `window` after GROUP BY as such a clause; only `WINDOW name AS (` is one.
    """
    for i, token in enumerate(tokens):
        if token.token_type == TokenType.WINDOW and not _opens_window_clause(tokens, i):
            tokens[i] = Token(
                token_type=TokenType.VAR,
                text=token.text,
                line=token.line,
                col=token.col,
                start=token.start,
                end=token.end,
            )
    return tokens


def _opens_window_clause(tokens: Sequence[Token], i: int) -> bool:
    following = [token.text.upper() for token in tokens[i + 2 : i + 4]]
    return following == ["AS", "("]


def _placed(sql: str, words: Sequence[Word], error: ParseError, shift: int) -> SqlAt:
    detail = error.errors[0] if error.errors else {}
    problem = (
        _COLOURS.sub("", str(detail.get("description") or error)).splitlines()[0].partition(" but got")[0].rstrip(".")
    )
    line, column = int(detail.get("line") or 1), int(detail.get("col") or 1)
    lines = sql.split("\n")
    offset = sum(len(text) + 1 for text in lines[: line - 1]) + column - 1 - (shift if line == 1 else 0)
    # sqlglot reports the end of the token; people look for its start.
    word = next((w for w in words if w.start <= offset <= w.end), None)
    found = f" at {word.text}" if word else ""
    at = word.start if word else min(max(offset, 0), len(sql))
    return refuse_at(sql, at, f"cannot be parsed{found}: {_expected(problem)}")


def _expected(problem: str) -> str:
    """What sqlglot expected, in plain words."""
    if problem.startswith("Expecting "):
        return (
            f"expected {problem.removeprefix('Expecting ')} there; check for something opened before it and not closed"
        )
    if problem.startswith("Required keyword"):
        return "expected a value or a column before it; check the operator there"
    return "expected the end, an operator or another clause; check the spelling of the words before it"
