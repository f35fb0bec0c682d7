"""The forms that a query can have: windows, joins, OVER, lookups; and what each SELECT gives."""
