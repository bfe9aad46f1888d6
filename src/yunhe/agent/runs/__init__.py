"""The allocations of a node: their directories, records, logs, users and meters."""
