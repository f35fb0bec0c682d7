"""A query as a tree: parsed, its columns, its names."""
