"""What sinks take of a rule's results, and what they promise."""
