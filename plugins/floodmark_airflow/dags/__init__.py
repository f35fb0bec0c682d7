"""The DAGs: of a rule, of a group of rules, of upkeep; and their documentation."""
