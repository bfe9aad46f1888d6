"""Tokens and certificates that change while we hold them: files, and programs that print them."""

import contextlib
import os
import ssl
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import msgspec

from yunhe.infrastructure.kubernetes.api.kubeconfig import Access, ExecPlugin
from yunhe.kernel.errors import UnauthenticatedError

REREAD_AFTER_S = 60.0
EXEC_WITHIN_S = 30.0
RENEW_BEFORE_S = 30.0


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What a program of credentials prints."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class ExecCredential(msgspec.Struct, frozen=True):
    """The envelope of it."""

    status: ExecStatus = ExecStatus()


class Credentials:
    """The token to send now; the certificate is fixed for as long as a connection lives."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._token = access.token
        self._good_until = float("inf") if not (access.token_file or access.exec_plugin) else 0.0
        self._certificate = (access.certificate, access.key)
        self._renewing = anyio.Lock()

    async def token(self) -> str:
        """Return the token to send, renewed when it is due; empty: there is none."""
        if time.time() < self._good_until:
            return self._token
        async with self._renewing:
            if time.time() >= self._good_until:
                await self._renew()
        return self._token

    def refused(self) -> bool:
        """Forget what the server refused; return whether asking again could bring something new."""
        if self._access.token_file or self._access.exec_plugin:
            self._good_until = 0.0
            return True
        return False

    async def tls(self) -> ssl.SSLContext | None:
        """Return how to speak TLS to the server; None: it is plain HTTP."""
        if not self._access.server.startswith("https://"):
            return None
        await self.token()
        return _context(self._access, *self._certificate)

    async def _renew(self) -> None:
        if self._access.exec_plugin is not None:
            status = await _run_plugin(self._access.exec_plugin)
            self._token = status.token or self._access.token
            if status.client_certificate_data:
                self._certificate = (
                    status.client_certificate_data.encode(),
                    status.client_key_data.encode(),
                )
            expires = status.expiration_timestamp
            self._good_until = (
                datetime.fromisoformat(expires).timestamp() - RENEW_BEFORE_S if expires else float("inf")
            )
            return
        try:
            self._token = (await anyio.Path(self._access.token_file).read_text()).strip()
        except OSError as error:
            raise UnauthenticatedError(f"The token file cannot be read: {error}.") from None
        self._good_until = time.time() + REREAD_AFTER_S


def _context(access: Access, certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=access.authority.decode() if access.authority else None)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        # The ssl module reads certificates from files only.
        handle, name = tempfile.mkstemp()
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(certificate + b"\n" + key)
            context.load_cert_chain(name)
        except ssl.SSLError as error:
            raise UnauthenticatedError(f"The client certificate cannot be used: {error}.") from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()
    return context


async def _run_plugin(plugin: ExecPlugin) -> ExecStatus:
    info: dict[str, Any] = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    environment = {
        **os.environ,
        **plugin.environment,
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
    }
    try:
        with anyio.fail_after(EXEC_WITHIN_S):
            done = await anyio.run_process(plugin.argv, env=environment, check=False)
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip()[:300]
            raise UnauthenticatedError(f"{plugin.argv[0]} gave no credentials: {words or done.returncode}.")
        return msgspec.json.decode(done.stdout, type=ExecCredential).status
    except (OSError, TimeoutError, msgspec.MsgspecError) as error:
        raise UnauthenticatedError(
            f"{plugin.argv[0]} gave no credentials: {error or 'no answer in time'}.",
            remedy="Run it by hand: it must print an ExecCredential.",
        ) from None
