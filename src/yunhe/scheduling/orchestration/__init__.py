"""Owns jobs and allocations: decides, launches, watches, recovers."""
