"""What people write into a rule file: a model of each of its parts, checked by itself."""
