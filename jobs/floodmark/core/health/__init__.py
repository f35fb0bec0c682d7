"""What `floodmark doctor` makes of what it has seen: pure decisions, no look at the machine."""
