"""Checks of a rule and its tables before an epoch starts."""
