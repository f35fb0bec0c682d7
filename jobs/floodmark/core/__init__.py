"""Makes all decisions without I/O: rule files, SQL, the protocol, the rule lifecycle."""
