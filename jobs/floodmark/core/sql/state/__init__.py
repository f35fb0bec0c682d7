"""What is kept for a query between epochs: partial aggregates, first rows, rows of windows."""
