"""The published method and its figures, recomputed beside what was printed."""
