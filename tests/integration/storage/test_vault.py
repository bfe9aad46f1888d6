"""The vault: what is sealed opens with its key and nothing else, and the key is there whole or not at all."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.storage.vault import SealBrokenError, Vault

VAULT, OTHER = Vault(Fernet.generate_key()), Vault(Fernet.generate_key())


@settings(max_examples=50, deadline=None)
@given(text=st.text())
def test_what_is_sealed_opens_with_the_same_key_only(text: str) -> None:
    sealed = VAULT.seal(text)
    assert VAULT.open(sealed) == text
    assert sealed != VAULT.seal(text), "two seals of one text can be told to be of one text"
    with pytest.raises(SealBrokenError):
        OTHER.open(sealed)


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
