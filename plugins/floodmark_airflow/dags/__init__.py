"""The DAGs of a rule, of a group of rules and of upkeep, with their documentation."""
