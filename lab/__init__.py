"""Experiments on traces; each prints the table the docs quote."""
