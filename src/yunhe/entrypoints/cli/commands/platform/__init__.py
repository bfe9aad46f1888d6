"""Commands that run and check the platform."""
