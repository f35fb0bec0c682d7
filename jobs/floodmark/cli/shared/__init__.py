"""What commands share: options, homes, confirmations, output, exit codes."""
