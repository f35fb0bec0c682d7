"""Defines a query's state between epochs: partial aggregates, first rows, rows of windows."""
