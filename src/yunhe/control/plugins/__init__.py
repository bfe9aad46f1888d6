"""Registered pools and the adapters that reach them."""
