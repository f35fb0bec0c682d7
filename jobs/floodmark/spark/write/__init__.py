"""WRITE and VERIFY: every table of a rule, written once for each epoch."""
