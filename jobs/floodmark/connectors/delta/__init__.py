"""Delta tables as sources and sinks."""
