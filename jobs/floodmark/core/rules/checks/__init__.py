"""Checks a rule file whose parts are each valid by themselves."""
