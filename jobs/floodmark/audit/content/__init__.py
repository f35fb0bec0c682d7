"""What files of rows prove, against the digests that the ledger has."""
