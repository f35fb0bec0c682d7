"""What a proof compares and concludes."""
