"""Hosts as a pool: one agent each, local or over SSH."""
