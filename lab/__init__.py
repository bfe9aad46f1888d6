"""Experiments on traces; each prints the tables the documentation quotes."""
