"""Rule files side by side: who reads whom, environments, where a value comes from."""
