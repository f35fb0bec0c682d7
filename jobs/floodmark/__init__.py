"""Floodmark: stateful stream rules that run exactly once on a lakehouse."""

__version__ = "0.1.0"
