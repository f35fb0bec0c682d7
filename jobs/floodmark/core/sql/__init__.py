"""Analyses a rule's SQL against an allow-list of what can be folded exactly, without Spark.

This package imports the parser only when a query is analysed, because that import takes half a second.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floodmark.core.sql.query import Query, analyse, analyse_expression, columns_in, literals_in, output_columns

__all__ = ["Query", "analyse", "analyse_expression", "columns_in", "literals_in", "output_columns"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    from floodmark.core.sql import query

    return getattr(query, name)
