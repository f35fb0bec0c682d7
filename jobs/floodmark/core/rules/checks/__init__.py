"""What is checked in a rule file once each of its parts is well formed by itself."""
