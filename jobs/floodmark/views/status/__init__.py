"""The status of rules, and their freshness."""
