"""Layer 1: the contract with engines, and its implementations."""
