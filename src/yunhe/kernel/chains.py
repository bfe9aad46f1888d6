"""Hash chains: how a line is tied to the one before it, and the signed head that says how long a chain was."""

import hashlib

import msgspec

GENESIS = "0" * 64
AUDITED = ("seq", "at", "user", "key_id", "action", "subject", "project_id", "outcome", "detail")
"""What a line of the audit log says; its digest is of these."""


class ChainHead(msgspec.Struct, frozen=True, kw_only=True, tag="head"):
    """How a chain stood at a moment, signed: whoever keeps one notices when lines before it are changed or cut off."""

    chain: str
    """``ledger`` or ``audit``; ``audit-cut`` is where the oldest lines of the audit log were removed."""
    lines: int
    hash: str
    """Of the last of these lines."""
    at: float
    key: str = ""
    """The public key, Ed25519, in base64."""
    signature: str = ""
    """Of everything above but the key, as canonical JSON, in base64."""


def digest_of(content: object) -> str:
    """Return the hash of what a line says."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def link(previous: str, digest: str) -> str:
    """Return the hash that ties a line to the one before it."""
    return hashlib.sha256(f"{previous}:{digest}".encode()).hexdigest()


def signed_bytes(head: ChainHead) -> bytes:
    """Return what the signature of a head is of."""
    said = {"chain": head.chain, "lines": head.lines, "hash": head.hash, "at": head.at}
    return msgspec.json.encode(said, order="sorted")
