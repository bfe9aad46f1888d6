"""Commands about projects, keys, secrets and contexts."""
