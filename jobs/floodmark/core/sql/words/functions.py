"""Checks which functions a rule's SQL calls, and whether a replay of the same rows gives the same result."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Sequence, Set

from floodmark.core.sql.words import function_names as names
from floodmark.core.sql.words.clock import CALLS as CLOCK_CALLS
from floodmark.core.sql.words.lexis import Word

NOT_YET = "is not supported yet"

# Keywords that may come directly before a parenthesis.
_KEYWORDS = frozenset(
    """
all and as between by case distinct div else escape except from group having in is join like ilike rlike regexp not on
or over select then union using values when where with within
""".split()
)

# Keywords that follow a value or a name: where an expression starts, Spark reads them as functions.
_FOLLOWING = _KEYWORDS - frozenset("all case distinct except from not select values".split())
_BEGINNING = frozenset(
    """
all and between both case distinct div else escape from having ilike leading like on or regexp rlike select then
trailing when where
""".split()
)
_AFTER_NOT = frozenset("between in like ilike rlike regexp".split())
_BEFORE_BY = frozenset("cluster distribute group order partition sort".split())

TEXTS = ("string", "raw")

_REASONS = (
    (names.CLOCKS, "it reads the clock, so a replay would give a different answer"),
    (
        names.RANDOM,
        "a replay would give a different answer; take a column, or a hash of columns such as xxhash64(a, b)",
    ),
    (names.SURROUNDINGS, "its answer depends on the session or the file, not on the row"),
    (names.OUTSIDE, "it does more than compute a value from the row"),
    (names.GENERATORS, "functions that return several rows are not supported yet"),
    (names.STATEFUL, f"it {NOT_YET}"),
    (
        names.ORDER_DEPENDENT,
        "its answer depends on row order; use max, min or count, or sort_array(collect_list(...)) for a list",
    ),
    (names.RANKS, "expected OVER (...) after it"),
)
# Spark reads these strings as the clock wherever it expects a date or timestamp, in casts and comparisons.
_CLOCK_TEXT = re.compile(r"(?:now|(?:today|tomorrow|yesterday)(?:\s+\S+|[^a-z\s]\S*)?)", re.IGNORECASE)
_SIZE, _HOP, _GAP = (
    "window(event_time, '1 minute')",
    "window(event_time, '1 minute', '10 seconds')",
    "session_window(event_time, '5 minutes')",
)
# Names of functions in other engines -> what to write here.
_ELSEWHERE = {
    **dict.fromkeys(("tumble", "tumblingwindow", "tumbling_window", "time_bucket", "date_bin", "time_window"), _SIZE),
    **dict.fromkeys(("hop", "hoppingwindow", "hopping_window"), _HOP),
    **dict.fromkeys(("session", "sessionwindow"), _GAP),
    **dict.fromkeys(("slidingwindow", "sliding_window"), "an OVER (... RANGE ...) of event time"),
    "countwindow": "count_window",
    "statewindow": "state_window",
}
_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_CONTROLS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_BLANK = "".join(map(chr, (*range(33), *range(127, 161))))  # characters that Spark trims before it reads a date


def check_functions(sql: str, words: Sequence[Word], grouped: Set[int], clocked: Set[int]) -> None:
    """Raise SqlAt for the first function that is not allowed where it is called.

    grouped: the numbers of the SELECTs that have a GROUP BY; elsewhere an aggregate needs an OVER. clocked: the numbers
    of the SELECTs whose list may contain the epoch's clock.
    """
    for i, word in enumerate(words):
        if word.kind in TEXTS and not (i and words[i - 1].kind in TEXTS):
            _check_text(sql, words, i)
        elif is_call(words, i):
            if words[i].name in CLOCK_CALLS:
                _check_clock(sql, words, i, clocked)
            else:
                _check_call(sql, words, i, grouped)


def _check_clock(sql: str, words: Sequence[Word], i: int, clocked: Set[int]) -> None:
    word = words[i]
    if i and words[i - 1].text == ".":
        raise word.refuse(sql, f"function {word.text}: a qualified function name is not allowed")
    if words[i + 2].text != ")" or word.kind != "word":
        raise word.refuse(sql, f"function {word.text}: expected current_timestamp(), the epoch's recorded clock")
    if word.select not in clocked or word.clause not in ("select", ""):
        raise word.refuse(
            sql,
            f"function {word.text}: the epoch's clock is allowed only in the list of the outermost SELECT (or in a "
            "stream's event_time expr): elsewhere, each epoch could decide differently about the same rows",
        )


def is_call(words: Sequence[Word], i: int) -> bool:
    """Whether token `i` is the name of a function call."""
    word = words[i]
    if word.kind not in ("word", "quoted") or i + 1 >= len(words) or words[i + 1].text != "(":
        return False
    before = words[i - 1] if i else None
    if word.kind == "word" and word.name in _KEYWORDS:
        return word.name in _FOLLOWING and _begins_expression(words, i)
    if word.kind == "word" and before and before.name in ("like", "ilike"):
        return word.name not in ("any", "some")
    return not (word.kind == "word" and word.name == "filter" and before and before.text == ")")


def _begins_expression(words: Sequence[Word], i: int) -> bool:
    """Whether token `i`, a keyword that elsewhere follows a value, is where an expression starts."""
    if i == 0:
        return True
    before, name = words[i - 1], words[i].name
    if before.kind == "operator":
        return before.text not in (")", "]")
    if before.kind != "word" or (i > 1 and words[i - 2].text == "."):
        return False
    if before.name == "by":
        return i > 1 and words[i - 2].name in _BEFORE_BY
    if before.name == "not":
        return name not in _AFTER_NOT
    return before.name in _BEGINNING and (before.name, name) != ("case", "when")


def _check_text(sql: str, words: Sequence[Word], i: int) -> None:
    # Spark concatenates adjacent texts: 'no' 'w' is 'now'.
    side_by_side = itertools.takewhile(lambda word: word.kind in TEXTS, itertools.islice(words, i, None))
    if _CLOCK_TEXT.fullmatch("".join(map(spelt, side_by_side)).strip(_BLANK)):
        problem = f"the string {words[i].text}: Spark may read the clock for it, so a replay would differ"
        raise words[i].refuse(sql, f"{problem}. To compare a string column with it, write `column RLIKE '^...$'`")


def spelt(word: Word, doubled: str = "") -> str:
    """The text of a literal. `doubled`: what a doubled quote stands for: Spark may join the parts around it."""
    if word.kind == "raw":
        return word.text[2:-1]
    inside = word.text[1:-1].replace(word.text[0] * 2, doubled)
    return _ESCAPES.sub(_unescaped, inside)


def _unescaped(match: re.Match[str]) -> str:
    short, long, octal, plain = match.groups()
    if plain is not None:
        return _CONTROLS.get(plain, plain)
    code = int(octal, 8) if octal else int(short or long, 16)
    return chr(code) if code <= 0x10FFFF else ""


def _check_call(sql: str, words: Sequence[Word], i: int, grouped: Set[int]) -> None:
    word = words[i]
    if i and words[i - 1].text == ".":
        raise word.refuse(sql, f"function {word.text}: a qualified function name is not allowed")
    if word.name in names.SORTABLE and _is_sorted(words, i):
        return _check_aggregate(sql, word, grouped)
    if word.name in names.SETS and word.clause == "group":
        return None
    if word.name in names.RANKS and _is_over(words, i):
        return None
    for group, reason in _REASONS:
        if word.name in group:
            raise word.refuse(sql, f"function {word.text}: {reason}")
    if word.name not in names.ALLOWED:
        raise word.refuse(sql, f"function {word.text}: {_unknown(word.name)}")
    if word.name == "unix_timestamp" and words[i + 2].text == ")":
        raise word.refuse(sql, f"function {word.text}: without an argument it reads the clock; a replay would differ")
    if word.name == "typeof" and word.select in grouped:
        raise word.refuse(
            sql,
            f"function {word.text}: Spark treats it as a constant and fails to plan it with a GROUP BY; write the "
            "type's name as a string",
        )
    if word.name in names.AGGREGATES | names.GROUPING and not (word.name in names.AGGREGATES and _is_over(words, i)):
        _check_aggregate(sql, word, grouped)
    elif word.name not in names.AGGREGATES and _is_over(words, i):
        raise word.refuse(sql, f"function {word.text}: OVER is for aggregates")
    return None


def _is_over(words: Sequence[Word], i: int) -> bool:
    """Whether the call at `i` has an OVER."""
    after = closing(words, i + 1) + 1
    if after + 1 < len(words) and words[after].name == "filter" and words[after + 1].text == "(":
        after = closing(words, after + 1) + 1
    return after < len(words) and words[after].kind == "word" and words[after].name == "over"


def _unknown(name: str) -> str:
    near = [_ELSEWHERE[name]] if name in _ELSEWHERE else difflib.get_close_matches(name, sorted(names.ALLOWED), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"it is not one of the built-in functions known to give the same answer in a replay{hint}"


def _check_aggregate(sql: str, word: Word, grouped: Set[int]) -> None:
    if word.select not in grouped:
        raise word.refuse(sql, f"aggregate {word.text} without GROUP BY window(...): that {NOT_YET}")
    if word.clause not in ("select", "having"):
        raise word.refuse(sql, f"aggregate {word.text} in {word.clause.upper()}: use it in SELECT or HAVING")


def _is_sorted(words: Sequence[Word], i: int) -> bool:
    """Whether the call at `i` is the whole first argument of sort_array, or the only argument of array_sort."""
    sorter = words[i - 2].name if i >= 2 and words[i - 1].text == "(" else ""
    after = closing(words, i + 1) + 1
    if after + 1 < len(words) and words[after].name == "filter" and words[after + 1].text == "(":
        after = closing(words, after + 1) + 1
    follows = words[after].text if after < len(words) else ""
    # With a comparator of its own, array_sort leaves equal elements in the order in which they arrived.
    return (sorter == "sort_array" and follows in (")", ",")) or (sorter == "array_sort" and follows == ")")


def closing(words: Sequence[Word], opening: int) -> int:
    """Index of the parenthesis that closes the one at `opening`."""
    depth = 0
    for i in range(opening, len(words)):
        depth += {"(": 1, ")": -1}.get(words[i].text, 0)
        if depth == 0:
            return i
    return len(words)
