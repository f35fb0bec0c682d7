"""What the engine knows of sources and sinks, whatever their kind."""
