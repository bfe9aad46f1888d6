"""Where a demand should run and why: pure functions of a demand and a snapshot."""
