"""Test cases of rules: what a case file says, and how what a rule gives differs from it. Pure."""
