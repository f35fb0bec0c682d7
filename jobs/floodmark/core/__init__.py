"""Everything that is decided without I/O: rule files, SQL, the protocol, what may happen to a rule."""
