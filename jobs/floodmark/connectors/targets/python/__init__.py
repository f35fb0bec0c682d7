"""A target of one's own: a Python class that takes batches of rows."""
