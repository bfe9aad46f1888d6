"""Commands about costs and the ledger."""
