"""How the platform and an agent talk: frames, calls, streams, checked bodies, refusals."""
