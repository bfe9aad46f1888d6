"""The kit is in yunhe.conformance; this is its former name."""

from yunhe.conformance.caller import Caller, archive_of, chunks_of, fetch, find, joined, new_allocation_id

__all__ = ["Caller", "archive_of", "chunks_of", "fetch", "find", "joined", "new_allocation_id"]
