"""The vault: seals small texts with a key that lives outside the database."""

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from yunhe.kernel.errors import YunheError


class SealBrokenError(YunheError):
    """A sealed text was made with another key, or was changed."""

    code = "seal-broken"
    status = 500


class Vault:
    """Seals and opens; authenticated encryption, so a changed text does not open."""

    def __init__(self, key: bytes, on_secret: Callable[[str], None] | None = None) -> None:
        self._fernet = Fernet(key)
        self._on_secret = on_secret or str

    @classmethod
    def at(cls, path: Path, on_secret: Callable[[str], None] | None = None) -> "Vault":
        """Return the vault whose key is in the file *path*; the file is made, for the owner alone, when missing.

        *on_secret* is told each text that is sealed or opened, so that it can be kept out of logs.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make_key(path)
        return cls(path.read_bytes().strip(), on_secret)

    def seal(self, text: str) -> str:
        """Return *text* encrypted."""
        self._on_secret(text)
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, sealed: str) -> str:
        """Return what was sealed."""
        try:
            text = self._fernet.decrypt(sealed.encode()).decode()
        except InvalidToken:
            raise SealBrokenError(
                "A secret cannot be opened with this platform's key.",
                remedy="Restore the vault key that belongs to this database, or set the secret again.",
            ) from None
        self._on_secret(text)
        return text


def _make_key(path: Path) -> None:
    """Put a new key at *path*, whole or not at all; of several processes that do so at once, one wins."""
    fresh = path.with_suffix(f".{secrets.token_hex(8)}.new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(Fernet.generate_key())
        file.flush()
        os.fsync(handle)
    with contextlib.suppress(FileExistsError):
        os.link(fresh, path)
    fresh.unlink()
