"""Which nodes of a pool take a request, and what is left on them."""
