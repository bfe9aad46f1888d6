"""Placing instances on hosts: packing rules, tiers, admission at scale."""
