"""Layer 3: where work should run, and why."""
