"""Engines of plugins that are their own processes, reached over gRPC; ``RemoteKind`` is all the rest needs."""
