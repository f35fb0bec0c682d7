"""The engine's interface to sources and sinks of any kind."""
