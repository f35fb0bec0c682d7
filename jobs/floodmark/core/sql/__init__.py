"""A rule's SQL: an allow-list of what can be folded exactly, decided without Spark.

The parser takes half a second to import, so it is imported when a query is analysed, and not before.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floodmark.core.sql.query import Query, analyse, analyse_expression, columns_in, output_columns

__all__ = ["Query", "analyse", "analyse_expression", "columns_in", "output_columns"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    from floodmark.core.sql import query

    return getattr(query, name)
