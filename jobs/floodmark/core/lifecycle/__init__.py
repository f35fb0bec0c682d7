"""What may happen to a rule beside its epochs, and when: pure decisions."""
