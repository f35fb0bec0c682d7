"""Files that somebody drops into a folder, as a stream."""
