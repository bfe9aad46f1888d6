"""How many instances a host can carry, on real traces, walked through as they happened."""
