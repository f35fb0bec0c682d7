"""Files, YAML, places in it, types as text, durations, addresses: what rule files are made of."""
