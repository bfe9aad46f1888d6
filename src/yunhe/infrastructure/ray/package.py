"""What travels to a Ray node: our runner, once for all; an order and its archives, for each allocation.

Packages are named by their content and made so that the same content gives the same bytes. Ray keeps them, unpacks
them on the node that runs the job, and drops them when no job uses them any more.
"""

import hashlib
import io
import secrets
import zipfile
from functools import cache
from typing import NamedTuple

import msgspec

from yunhe.agent.package import sources_of
from yunhe.infrastructure.contract.model import LaunchOrder
from yunhe.infrastructure.ray.node.runner import ARCHIVE, ORDER, UPLOAD

_SOME_DAY = (2020, 1, 1, 0, 0, 0)


class Package(NamedTuple):
    """A zip archive and the name Ray keeps it under."""

    name: str
    data: bytes

    @property
    def uri(self) -> str:
        """Return what a runtime environment calls it."""
        return package_uri(self.name)


class Sealed(NamedTuple):
    """Secrets that only together with their key mean anything."""

    text: str
    key: str


def package_uri(name: str) -> str:
    """Return what a runtime environment calls the package *name*."""
    return f"gcs://{name}"


@cache
def runner_package() -> Package:
    """Return our runner with the agent's parts, as this installation has them."""
    return _pack("runner", {**sources_of("yunhe.agent"), **sources_of("yunhe.infrastructure.ray.node")})


def order_package(order: LaunchOrder, sealed: Sealed, sweep: list[str]) -> Package:
    """Return *order* for the runner; secrets are in it only as they were sealed."""
    body = msgspec.to_builtins(order)
    body["secrets"] = sealed.text
    body["sweep"] = sweep
    return _pack("order", {ORDER: msgspec.json.encode(body)})


def upload_package(path: str, archive: bytes) -> Package:
    """Return a gzip-compressed tar with the place it is unpacked at."""
    return _pack("upload", {UPLOAD: msgspec.json.encode({"path": path}), ARCHIVE: archive})


def seal_secrets(values: dict[str, str]) -> Sealed:
    """Return *values* sealed with a key that is used once; the node's side is ``node.runner.open_secrets``."""
    key = secrets.token_bytes(32)
    data = msgspec.json.encode(values) if values else b""
    stream = hashlib.shake_256(key).digest(len(data))
    return Sealed(bytes(a ^ b for a, b in zip(data, stream, strict=True)).hex(), key.hex())


def _pack(kind: str, members: dict[str, bytes]) -> Package:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _SOME_DAY)
            # What is compressed already is only carried.
            method = zipfile.ZIP_STORED if name == ARCHIVE else zipfile.ZIP_DEFLATED
            archive.writestr(info, members[name], method)
    data = buffer.getvalue()
    return Package(f"_ray_pkg_yunhe_{kind}_{hashlib.sha256(data).hexdigest()[:32]}.zip", data)
