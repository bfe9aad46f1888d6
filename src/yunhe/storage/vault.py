"""The vault: seals small texts with keys that live outside the database, each for one place alone."""

import base64
import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from yunhe.kernel.errors import ConflictError, InvalidInputError, YunheError

FORM = "yv2"
"""How sealed texts begin that are bound to their place; those before them were not bound to any (Fernet)."""
NONCE_BYTES = 12


class SealBrokenError(YunheError):
    """A sealed text was made with another key or for another place, or was changed."""

    code = "seal-broken"
    status = 500


def secret_place(project_id: str, name: str) -> tuple[str, ...]:
    """Return what a project's secret is bound to, in the vault's table and in the orders of jobs."""
    return "secret", project_id, name


class _Key(NamedTuple):
    id: str
    cipher: AESGCM
    fernet: Fernet


class KeyFiles(NamedTuple):
    """The files of a vault's keys: the one that seals, the one to come and the one before it."""

    current: Path
    next: Path
    old: Path

    @classmethod
    def of(cls, path: Path) -> "KeyFiles":
        """Return the files beside *path*, the key that seals."""
        return cls(path, path.with_name(f"{path.name}.next"), path.with_name(f"{path.name}.old"))

    def prepare(self) -> None:
        """Make the key to come; where there is one, or a rotation is not finished, change nothing."""
        if not self.next.exists() and not self._is_switched():
            _make_key(self.next)

    def switch(self) -> None:
        """Let the key to come seal; the one before it stays beside it. At every moment each is in a file."""
        if not self.next.exists():
            return
        _key_in(self.next)
        if self._is_switched():
            raise ConflictError(
                "There is another key to come, and the rotation before it is not finished.",
                remedy=f"Move {self.next} away, finish with `yunhe vault rotate`, and move it back.",
            )
        with contextlib.suppress(FileExistsError):
            os.link(self.current, self.old)
        _sync(self.current.parent)
        self.next.replace(self.current)
        _sync(self.current.parent)

    def finish(self) -> None:
        """Remove the key before."""
        self.old.unlink(missing_ok=True)
        _sync(self.current.parent)

    def _is_switched(self) -> bool:
        return self.old.exists() and self.old.read_bytes().strip() != self.current.read_bytes().strip()


class Vault:
    """Seals and opens; authenticated encryption, so a text that was changed or moved does not open.

    It seals with the newest key of its file, looked at each time, and keeps in memory each key it has read: what another
    part of the process has read from the database before a rotation still opens.
    """

    def __init__(
        self, key: bytes, on_secret: Callable[[str], None] | None = None, *, path: Path | None = None
    ) -> None:
        self._on_secret = on_secret or str
        self._keys: dict[str, _Key] = {}
        self._current = self._add(key)
        self._files = None if path is None else KeyFiles.of(path)
        self._read: tuple[int, int] | None = None
        self._read_files()

    @classmethod
    def at(cls, path: Path, on_secret: Callable[[str], None] | None = None) -> "Vault":
        """Return the vault whose key is in the file *path*; the file is made, for the owner alone, when missing.

        *on_secret* is told each text that is sealed or opened, so that it can be kept out of logs.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make_key(path)
        return cls(_key_in(path), on_secret, path=path)

    @property
    def key_id(self) -> str:
        """Return a name of the key that seals; it tells nothing of the key."""
        self._follow()
        return self._current.id

    def seal(self, text: str, *place: str) -> str:
        """Return *text* encrypted; it opens for the same *place* alone."""
        self._on_secret(text)
        self._follow()
        key, nonce = self._current, secrets.token_bytes(NONCE_BYTES)
        data = nonce + key.cipher.encrypt(nonce, text.encode(), _bound(key, place))
        return f"{FORM}.{key.id}.{base64.urlsafe_b64encode(data).decode()}"

    def open(self, sealed: str, *place: str) -> str:
        """Return what was sealed for *place*, or before texts were bound to places."""
        text = self._opened(sealed, place)
        if text is None:
            self._read_files()  # it may be sealed with a key that came later
            text = self._opened(sealed, place)
        if text is None:
            raise SealBrokenError(
                f"What is sealed for {' '.join(place)} cannot be opened here: another key, another place, or changed.",
                remedy="Put the vault.key that belongs to this database into this home, or set the secret again.",
            )
        self._on_secret(text)
        return text

    def renew(self, sealed: str, *place: str) -> str:
        """Return a sealed text as the key of today seals it; the same text where it did."""
        return (
            sealed
            if sealed.startswith(f"{FORM}.{self.key_id}.")
            else self.seal(self.open(sealed, *place), *place)
        )

    def _opened(self, sealed: str, place: tuple[str, ...]) -> str | None:
        form, _, rest = sealed.partition(".")
        if form != FORM:
            for key in self._keys.values():
                with contextlib.suppress(InvalidToken):
                    return key.fernet.decrypt(sealed.encode()).decode()
            return None
        key_id, _, data = rest.partition(".")
        key = self._keys.get(key_id)
        if key is not None:
            with contextlib.suppress(InvalidTag, ValueError):
                raw = base64.urlsafe_b64decode(data)
                bound = _bound(key, place)
                return key.cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], bound).decode()
        return None

    def _add(self, key: bytes) -> _Key:
        raw = base64.urlsafe_b64decode(key)
        derived = HKDF(SHA256(), 32, salt=None, info=b"yunhe vault 2").derive(raw)
        key_id = hashlib.sha256(b"yunhe vault id" + raw).hexdigest()[:8]
        return self._keys.setdefault(key_id, _Key(key_id, AESGCM(derived), Fernet(key)))

    def _follow(self) -> None:
        """Take up the key that seals from now on, if its file is another one."""
        if self._files is not None and _identity(self._files.current) != self._read:
            self._read_files()

    def _read_files(self) -> None:
        """Read every key there is, in the order in which a key moves from file to file, so that none is missed."""
        if self._files is None:
            return
        found = _identity(self._files.current)
        for path in (self._files.next, self._files.current, self._files.old):
            with contextlib.suppress(OSError, InvalidInputError):  # not there, or still being copied
                key = self._add(_key_in(path))
                if path == self._files.current:
                    self._current, self._read = key, found


def _bound(key: _Key, place: tuple[str, ...]) -> bytes:
    return msgspec.json.encode((FORM, key.id, *place))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


def _key_in(path: Path) -> bytes:
    key = path.read_bytes().strip()
    try:
        Fernet(key)
    except ValueError:
        raise InvalidInputError(
            f"{path} does not hold a key of a vault.",
            remedy="Copy it again, whole, from where it was made.",
        ) from None
    return key


def _sync(folder: Path) -> None:
    """Let the names in *folder* survive a power cut: what is sealed next needs the key."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
    _sync(path.parent)
