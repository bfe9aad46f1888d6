"""Pools: registered, connected, looked at, drained and removed; orders go to their engines."""
