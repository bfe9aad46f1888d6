"""What would happen: the scheduling core under tasks that arrive, run, fail and end, faster than time passes."""
