"""Logs of the platform itself, with secrets kept out."""
