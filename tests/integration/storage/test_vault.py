"""The vault: what is sealed opens with its key and nothing else, and the key is there whole or not at all."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from hypothesis import example, given, settings
from hypothesis import strategies as st

from yunhe.kernel.errors import ConflictError, InvalidInputError
from yunhe.storage.vault import KeyFiles, SealBrokenError, Vault, secret_place

VAULT, OTHER = Vault(Fernet.generate_key()), Vault(Fernet.generate_key())


@settings(max_examples=50, deadline=None)
@given(text=st.text())
def test_what_is_sealed_opens_with_the_same_key_only(text: str) -> None:
    sealed = VAULT.seal(text, "here")
    assert VAULT.open(sealed, "here") == text
    assert sealed != VAULT.seal(text, "here"), "two seals of one text can be told to be of one text"
    with pytest.raises(SealBrokenError):
        OTHER.open(sealed, "here")


places = st.lists(st.text(max_size=3), max_size=3)


@settings(max_examples=100, deadline=None)
@given(place=places, other=places)
@example(["a", "b"], ["ab"])
@example(["a", "b"], ['a","b'])
def test_a_sealed_text_opens_for_its_place_alone(place: list[str], other: list[str]) -> None:
    sealed = VAULT.seal("secret", *place)
    assert VAULT.open(sealed, *place) == "secret"
    if other != place:
        with pytest.raises(SealBrokenError):
            VAULT.open(sealed, *other)


def test_what_was_sealed_before_places_were_bound_still_opens() -> None:
    key = Fernet.generate_key()
    sealed = Fernet(key).encrypt(b"secret").decode()
    assert Vault(key).open(sealed, *secret_place("demo", "TOKEN")) == "secret"


def test_a_key_to_come_that_is_half_copied_stops_nobody_and_is_not_taken_up(tmp_path: Path) -> None:
    files = KeyFiles.of(tmp_path / "vault.key")
    vault = Vault.at(files.current)
    files.next.write_text("half")
    assert Vault.at(files.current).open(vault.seal("secret")) == "secret"
    with pytest.raises(InvalidInputError, match="does not hold a key"):
        files.switch()


def test_a_second_rotation_does_not_begin_over_one_that_is_not_finished(tmp_path: Path) -> None:
    files = KeyFiles.of(tmp_path / "vault.key")
    sealed = Vault.at(files.current).seal("secret")
    files.prepare()
    files.switch()
    files.next.write_bytes(Fernet.generate_key())
    with pytest.raises(ConflictError, match="not finished"):
        files.switch()
    assert Vault.at(files.current).open(sealed) == "secret"


@settings(max_examples=50, deadline=None)
@given(
    text=st.text(min_size=1),
    at=st.integers(0, 10_000),
    turned=st.characters(min_codepoint=33, max_codepoint=126),
)
def test_a_seal_that_was_changed_does_not_open(text: str, at: int, turned: str) -> None:
    sealed = VAULT.seal(text)
    at %= len(sealed.rstrip("=")) - 1  # the last character before the padding has bits that mean nothing
    if sealed[at] == turned:
        return
    with pytest.raises(SealBrokenError):
        VAULT.open(sealed[:at] + turned + sealed[at + 1 :])


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "home" / "vault.key"
    sealed = Vault.at(path).seal("secret")
    assert Vault.at(path).open(sealed) == "secret"
    assert path.stat().st_mode & 0o077 == 0
    assert [entry.name for entry in path.parent.iterdir()] == ["vault.key"]


def test_processes_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def open_vault(_: int) -> Vault:
        together.wait(10)
        return Vault.at(tmp_path / "vault.key")

    with ThreadPoolExecutor(8) as pool:
        vaults = list(pool.map(open_vault, range(8)))
    sealed = vaults[0].seal("secret")
    assert [vault.open(sealed) for vault in vaults] == ["secret"] * 8


def test_a_process_that_dies_while_it_makes_the_key_leaves_none_that_is_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def die(_: int) -> None:
        raise KilledError

    path = tmp_path / "vault.key"
    monkeypatch.setattr(os, "fsync", die)
    with pytest.raises(KilledError):
        Vault.at(path)
    monkeypatch.undo()
    assert not path.exists()
    assert Vault.at(path).open(Vault.at(path).seal("secret")) == "secret"
