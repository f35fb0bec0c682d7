"""Splits SQL into words by Spark's lexical rules and lists the functions that a rule may use."""
