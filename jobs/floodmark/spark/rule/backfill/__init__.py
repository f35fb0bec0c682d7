"""An interval computed again, and put into the sinks."""
