"""Makes a task precise: what must hold wherever it runs."""
