"""Fuzzing of what comes from outside: archives and the frames of agents."""
