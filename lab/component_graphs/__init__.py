"""Placing streams of component graphs on networks: acceptance against what has been published."""
