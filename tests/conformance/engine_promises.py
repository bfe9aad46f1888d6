"""The kit is in yunhe.conformance; this is its former name."""

from yunhe.conformance.engine_promises import EnginePromises

__all__ = ["EnginePromises"]
