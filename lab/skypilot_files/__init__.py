"""Which SkyPilot task files are read, and what becomes of each of their fields."""
