"""Analyses the forms that a query can have: windows, joins, OVER, lookups; and the result of each SELECT."""
