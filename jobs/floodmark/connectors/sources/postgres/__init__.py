"""PostgreSQL as a source: the changes of a table, or its rows."""
