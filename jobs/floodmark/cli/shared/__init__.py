"""What commands share: options, places, questions, output, exit codes."""
