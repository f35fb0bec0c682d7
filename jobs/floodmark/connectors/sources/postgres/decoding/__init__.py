"""What PostgreSQL sends: messages of changes, values as text, types."""
