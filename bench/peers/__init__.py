"""Compare Floodmark with its peers on the same events: windows of a minute, by key."""
