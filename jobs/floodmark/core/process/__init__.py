"""Reads what a rule's Python class declares, from its text, and calls the class."""
