"""What runs a task: a folder for each runtime, a table of them, and what all of them share.

Each folder has ``runtime`` (what the daemon asks of the host) and ``sandbox`` (where the steps of one task run).
"""
