"""How commands that run rules work through them, and what they print."""
