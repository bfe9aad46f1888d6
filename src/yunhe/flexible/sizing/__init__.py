"""What size an instance should have, tier by tier, from what it was measured to use, and why."""
