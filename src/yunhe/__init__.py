"""Yunhe: the Internet of computing."""

__version__ = "0.1.0"
