"""FOLD by a Python class."""
