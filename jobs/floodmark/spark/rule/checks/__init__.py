"""What is checked of a rule and its tables before an epoch is begun."""
