"""What commands that run rules do and print."""
