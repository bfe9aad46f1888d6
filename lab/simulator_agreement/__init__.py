"""Does the simulator say what a platform does: the same jobs on real hosts and simulated, with a pool that dies."""
