"""Signatures of chain heads: one Ed25519 key for a platform, sealed in its database, and the check anybody can make."""

import base64
import logging

import msgspec
import sqlalchemy as sa
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from yunhe.kernel.chains import ChainHead, signed_bytes
from yunhe.kernel.errors import InvalidInputError
from yunhe.storage.database import Connection, insert_if_missing, metadata
from yunhe.storage.resealing import SealedColumn
from yunhe.storage.vault import Vault

PLACE = "proof key"

KEYS = sa.Table(
    "proof_key",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("public", sa.String(64), nullable=False),
    sa.Column("sealed", sa.Text, nullable=False),
)
HEADS = sa.Table(
    "proof_head",
    metadata,
    sa.Column("chain", sa.String(16), primary_key=True),
    sa.Column("lines", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

SEALED = SealedColumn("proof key", KEYS, "sealed", lambda vault, row: vault.renew(row.sealed, PLACE))

log = logging.getLogger(__name__)


def sign(connection: Connection, vault: Vault, head: ChainHead) -> ChainHead:
    """Return *head* signed with the platform's key, which is made when there is none."""
    row = connection.execute(sa.select(KEYS)).first()
    if row is None:
        made = Ed25519PrivateKey.generate()
        public = base64.b64encode(made.public_key().public_bytes_raw()).decode()
        sealed = vault.seal(base64.b64encode(made.private_bytes_raw()).decode(), PLACE)
        insert_if_missing(connection, KEYS, id=1, public=public, sealed=sealed)
        log.info("a new key signs ledger and audit log", extra={"public_key": public})
        row = connection.execute(sa.select(KEYS)).one()
    key = Ed25519PrivateKey.from_private_bytes(base64.b64decode(vault.open(row.sealed, PLACE)))
    signature = base64.b64encode(key.sign(signed_bytes(head))).decode()
    return msgspec.structs.replace(head, key=row.public, signature=signature)


def read_head(connection: Connection, chain: str) -> ChainHead | None:
    """Return the newest head of a chain that was signed."""
    body = connection.scalar(sa.select(HEADS.c.body).where(HEADS.c.chain == chain))
    return None if body is None else msgspec.json.decode(body, type=ChainHead)


def write_head(connection: Connection, head: ChainHead) -> None:
    """Keep a head in place of the one before it."""
    connection.execute(HEADS.delete().where(HEADS.c.chain == head.chain))
    connection.execute(
        HEADS.insert().values(chain=head.chain, lines=head.lines, body=msgspec.json.encode(head).decode())
    )


def check_head(head: ChainHead, public_key: str = "") -> str:
    """Return why a head is not to be believed; empty: it is signed, by *public_key* where that is given."""
    if public_key and public_key.strip() != head.key:
        return f"it is signed by {head.key}, not by the key given"
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(head.key))
        key.verify(base64.b64decode(head.signature), signed_bytes(head))
    except InvalidSignature:
        return "its signature is not of what it says"
    except ValueError as error:
        raise InvalidInputError(f"The head has no key or signature: {error}.") from None
    return ""
