"""What is known of the world: pools, nodes and usage, as one snapshot."""
