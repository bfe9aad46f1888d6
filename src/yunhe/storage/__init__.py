"""Tables, transactions, leases, the outbox and blobs; no business words."""
