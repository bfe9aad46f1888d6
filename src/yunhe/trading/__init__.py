"""Layer 4: what is wanted, sold and owed."""
