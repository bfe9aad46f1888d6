"""The kit is in yunhe.conformance; this is its former name."""

from yunhe.conformance.basic_promises import BasicPromises, Connect

__all__ = ["BasicPromises", "Connect"]
