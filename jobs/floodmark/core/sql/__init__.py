"""A rule's SQL: an allow-list of what can be folded exactly, decided without Spark."""

from floodmark.core.sql.lexis import SqlAt
from floodmark.core.sql.query import Query, analyse, analyse_expression
from floodmark.core.sql.window import WindowSpec

__all__ = ["Query", "SqlAt", "WindowSpec", "analyse", "analyse_expression"]
