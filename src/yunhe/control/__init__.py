"""Layer 2: make it so, keep it so."""
