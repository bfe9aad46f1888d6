"""REST and SSE over the facades of the sub-modules."""
