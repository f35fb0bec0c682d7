"""What a rule's tables hold: state, open windows, late and dead rows."""
