"""Kubernetes clusters as pools."""
