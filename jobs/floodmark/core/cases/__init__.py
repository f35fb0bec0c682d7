"""Test cases of rules: reads case files and compares a rule's results with them. Pure."""
