"""The contents of a rule's tables: state, open windows, late and dead rows."""
