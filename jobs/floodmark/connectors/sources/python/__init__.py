"""A source of one's own: a Python class that gives offsets and rows."""
