"""The price book, the hash-chained ledger and what is owed."""
