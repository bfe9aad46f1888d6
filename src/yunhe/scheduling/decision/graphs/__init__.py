"""Placing a graph of components on a network of nodes and links, all of it or none."""
