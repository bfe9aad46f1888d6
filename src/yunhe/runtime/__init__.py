"""Composition: the table of modules, which of them this process hosts, settings, wiring."""
