"""Plugins: programs that reach pools; registered, started within limits, supervised by heartbeats, replaced while running."""
