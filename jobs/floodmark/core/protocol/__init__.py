"""Implements the epoch protocol without I/O: the ledger's records, recovery, watermarks, digests."""
