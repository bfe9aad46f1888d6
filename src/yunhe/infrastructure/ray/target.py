"""Where a Ray cluster's dashboard is, and how we show who we are."""

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from yunhe.infrastructure.contract.kind import Target
from yunhe.kernel.errors import FieldProblem, InvalidInputError


class RayTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One Ray cluster."""

    url: str
    token_file: str = ""
    ca_file: str = ""

    def headers(self) -> dict[str, str]:
        """Return what shows Ray who we are; the token is read anew for each connection and kept nowhere."""
        if not self.token_file:
            return {}
        try:
            token = Path(self.token_file).expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InvalidInputError(
                f"The file with Ray's token cannot be read: {error}.",
                remedy="Write the token into it, or name another with --option token_file=…",
                fields=(FieldProblem("options.token_file", "cannot be read", self.token_file),),
            ) from None
        return {"Authorization": f"Bearer {token}"}

    def verify(self) -> ssl.SSLContext | bool:
        """Return whose certificates are believed."""
        if not self.ca_file:
            return True
        try:
            return ssl.create_default_context(cafile=str(Path(self.ca_file).expanduser()))
        except (OSError, ssl.SSLError) as error:
            raise InvalidInputError(
                f"The file with the certificate authority cannot be used: {error}.",
                fields=(FieldProblem("options.ca_file", "is no certificate authority", self.ca_file),),
            ) from None


def read_target(target: Target) -> RayTarget:
    """Return *target* as a Ray cluster, or say what is wrong with it."""
    parts = urlsplit(target.address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInputError(
            f"{target.address!r} is not the address of a Ray dashboard.",
            remedy="Give it as http://HEAD:8265.",
            fields=(FieldProblem("address", "must be http://HOST:PORT or https://…", target.address),),
        )
    return RayTarget(
        url=target.address.rstrip("/"),
        token_file=target.options.get("token_file", ""),
        ca_file=target.options.get("ca_file", ""),
    )
