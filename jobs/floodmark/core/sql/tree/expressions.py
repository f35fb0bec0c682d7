"""Checks which constructs an expression may contain, and where in the text a refused one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql.tree.refusals import BARE_NODES, EXPRESSIONS, REFUSED_EXPRESSIONS
from floodmark.core.sql.words.function_names import BARE, NO_TEXT_OF_CONSTANTS, SCALARS
from floodmark.core.sql.words.functions import NOT_YET
from floodmark.core.sql.words.lexis import Word
from floodmark.errors import SqlAt


@dataclass
class SqlText:
    """A rule's SQL with its words, for errors that name a place."""

    sql: str
    words: Sequence[Word]

    def at(self, names: Sequence[str], problem: str, select: int | None = None, clause: str = "") -> SqlAt:
        """The error for the first word out of `names`, preferably in this clause of the SELECT with this number."""
        found = [w for w in self.words if w.name in names and w.kind != "string"]
        inside = [w for w in found if (select is None or w.select == select) and clause in ("", w.clause)]
        return (inside or found or list(self.words))[0].refuse(self.sql, problem)


def check_expression(text: SqlText, root: exp.Expr, number: int = -1) -> None:
    """Refuse constructs that an expression of the SELECT with this number may not contain."""
    for node in root.walk():
        if isinstance(node, exp.Query):
            raise _subquery(text, node, number)
        refused = REFUSED_EXPRESSIONS.get(type(node))
        if refused is not None:
            raise text.at(refused[0], refused[1], number)
        if isinstance(node, exp.Window) and number < 0:
            raise text.at(("over",), "OVER in an expression over one row", number)
        if isinstance(node, exp.Alias) and not _may_be_named(node):
            raise text.at(
                (node.alias.lower(),),
                f"{node.sql('spark')}: only a column of a select list, or of struct(...), may have a name; Spark may "
                "interpret it differently",
                number,
            )
        if isinstance(node, exp.Anonymous) and node.name.lower() == "count" and _of_relation(node):
            shown = node.sql("spark")
            raise text.at((node.name.lower(),), f"{shown}: Spark counts no `relation.*`; write count(*)", number)
        if not isinstance(node, EXPRESSIONS):
            raise text.at(("select",), f"this form of expression ({node.key.upper()}) is not allowed", number)
        if _makes_text_of_constants(node):
            raise text.at(
                _names_of(node),
                "a string computed from constants: if it spells a time such as 'now', Spark may read the clock, and "
                "a replay would differ; write the string itself",
                number,
            )
        _bare(text, node, number)


def _of_relation(call: exp.Anonymous) -> bool:
    return any(isinstance(one, exp.Column) and one.is_star for one in call.expressions)


def has_star(tree: exp.Expr) -> bool:
    """Whether a `*` stands for columns; the one of count(*) does not."""
    for star in tree.find_all(exp.Star):
        parent = star.parent
        if not (isinstance(parent, exp.Anonymous) and parent.name.lower() == "count" and len(parent.expressions) == 1):
            return True
    return False


def names_first(tree: exp.Expr, name: str) -> bool:
    """Whether a column in it has this name, or is a field of what has it (`name.start`)."""
    return any(name == column.parts[0].name.lower() for column in tree.find_all(exp.Column))


def _subquery(text: SqlText, node: exp.Query, number: int) -> SqlAt:
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.Subquery)):
        parent = parent.parent
    inner = [w for w in text.words if w.name == "select" and w.select > number]
    form = {"in": "IN (SELECT ...)", "exists": "EXISTS (SELECT ...)"}.get(parent.key if parent else "", "")
    problem = f"{form or 'a subquery in an expression'} {NOT_YET}; write a JOIN (SEMI or ANTI, too)"
    return inner[0].refuse(text.sql, problem) if inner else text.at(("select",), problem, number)


def _bare(text: SqlText, node: exp.Expr, number: int) -> None:
    """Refuse names that Spark reads as the clock or the user if no column has that name."""
    bare = isinstance(node, exp.Column) and not node.args.get("table") and node.name.lower() in BARE
    if not bare and not isinstance(node, BARE_NODES):
        return
    name = node.name.lower() if bare else next((n for n in BARE if n.replace("_", "") == node.key), "")
    # Without the word in the text, the node is a call (`unix_timestamp()`); calls are checked by name.
    if any(word.name == name and word.select == number for word in text.words):
        problem = f"{name}: a replay would give a different answer; if it is a column, write STREAM.{name}"
        raise text.at((name,), problem, number)


def _may_be_named(node: exp.Alias) -> bool:
    parent = node.parent
    return isinstance(parent, exp.Select) or (isinstance(parent, exp.Anonymous) and parent.name.lower() == "struct")


def _makes_text_of_constants(node: exp.Expr) -> bool:
    """Whether Spark could fold the expression to a text that is not in the SQL."""
    if isinstance(node, exp.Anonymous):
        makes = node.name.lower() in SCALARS - NO_TEXT_OF_CONSTANTS
    elif isinstance(node, exp.Cast):
        makes = node.to.this in exp.DataType.TEXT_TYPES and not isinstance(node.this, (exp.Literal, exp.Null))
    else:
        makes = isinstance(node, (exp.DPipe, exp.Substring, exp.Trim, exp.Overlay, exp.Transform))
    return makes and _is_constant(node)


def _is_constant(node: exp.Expr) -> bool:
    # A lambda's variables are identifiers too. They vary inside of it; the call around it may be constant.
    varying = (exp.Column, exp.Star) if node.find(exp.Lambda) else (exp.Column, exp.Star, exp.Identifier)
    return node.find(*varying) is None


def _names_of(node: exp.Expr) -> tuple[str, ...]:
    if isinstance(node, exp.DPipe):
        return ("||",)
    return (node.name.lower(),) if isinstance(node, exp.Anonymous) else (node.key, "cast", "substr", "::")
