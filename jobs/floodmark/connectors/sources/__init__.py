"""The kinds of source, beside Delta tables."""
