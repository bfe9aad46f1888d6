"""Serve a plugin as its own process: ``yunhe-plugin plugin.toml``, or ``serve_plugin`` from a program of one's own.

Environment: ``YUNHE_URL`` is the platform to register with (none: it is only served), ``YUNHE_PLUGIN_KEY`` the key for
that, ``YUNHE_PLUGIN_INSTANCE`` this instance's name, ``YUNHE_PLUGIN_TOKEN`` the token callers must present (made anew
unless given), ``YUNHE_LOG_LEVEL`` from which level on it logs (info).
"""

import argparse
import importlib
import logging
import os
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import grpc
import msgspec

from yunhe.infrastructure.contract.kind import Kind
from yunhe.infrastructure.contract.manifest import Manifest, read_manifest
from yunhe.infrastructure.plugin.certificate import make_certificate
from yunhe.infrastructure.plugin.registration import Announcement, PlatformLink
from yunhe.infrastructure.plugin.server import PluginServer
from yunhe.kernel.errors import InvalidInputError, YunheError
from yunhe.observability.logs import logging_to
from yunhe.observability.redaction import keep_out

log = logging.getLogger(__name__)


def serve_plugin(manifest_path: Path, make_kind: Callable[[], Kind] | None = None) -> int:
    """Serve the kind a manifest names, or *make_kind*'s; return the exit code once it has ended."""
    arguments = _arguments(manifest_path)
    try:
        manifest = read_manifest(arguments.manifest)
        kind = (make_kind or _entry(manifest))()
        _limit_memory(manifest)
    except YunheError as error:
        sys.stderr.write(f"{error}\n" + "".join(f"  {field}\n" for field in error.fields))
        return 2
    keep_out(os.environ.get("YUNHE_PLUGIN_KEY", ""))
    with logging_to(None, level=os.environ.get("YUNHE_LOG_LEVEL") or "info"):
        anyio.run(_serve, manifest, kind, arguments)
    return 0


def main() -> None:
    """Serve the manifest given on the command line."""
    sys.exit(serve_plugin(Path("plugin.toml")))


def _arguments(manifest_path: Path) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serve a plugin as its own process.")
    parser.add_argument("manifest", nargs="?", type=Path, default=manifest_path, help="its plugin.toml")
    parser.add_argument(
        "--listen",
        default="127.0.0.1:0",
        help="host:port (0: any that is free) or unix:/path; default %(default)s",
    )
    parser.add_argument(
        "--announce", type=Path, help="write address, certificate and token to this file, for callers by hand"
    )
    return parser.parse_args()


def _entry(manifest: Manifest) -> Callable[[], Kind]:
    module, _, attribute = manifest.entry.partition(":")
    if not attribute:
        raise InvalidInputError(
            f"The manifest of {manifest.name} names no entry to serve.",
            remedy="Give entry = 'package.module:attribute', or call serve_plugin with your kind.",
        )
    return getattr(importlib.import_module(module), attribute)


def _limit_memory(manifest: Manifest) -> None:
    """Bound what this process may allocate; libraries and stacks that are only mapped count beside the limit."""
    limit = manifest.limits.memory_mib * 1024 * 1024
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))


async def _serve(manifest: Manifest, kind: Kind, arguments: argparse.Namespace) -> None:
    over_socket = arguments.listen.startswith("unix:")
    key, certificate = (b"", b"") if over_socket else make_certificate()
    credentials = None if over_socket else grpc.ssl_server_credentials([(key, certificate)])
    token = os.environ.get("YUNHE_PLUGIN_TOKEN") or secrets.token_urlsafe(32)
    keep_out(token)
    server = PluginServer(manifest, kind, token)
    async with server.running(arguments.listen, credentials) as address:
        announcement = Announcement(manifest, address, certificate.decode(), token)
        if arguments.announce is not None:
            _write_privately(arguments.announce, announcement)
        log.info("serving %s %s at %s", manifest.name, manifest.version, address)
        await _until_told_to_end(announcement)
        await server.drain()
    log.info("ended")


async def _until_told_to_end(announcement: Announcement) -> None:
    """Return when another instance has taken over, or after the platform knows that this one goes."""
    instance = os.environ.get("YUNHE_PLUGIN_INSTANCE") or f"{socket.gethostname()}-{os.getpid()}"
    registration = PlatformLink(os.environ, announcement, instance) if os.environ.get("YUNHE_URL") else None
    async with anyio.create_task_group() as tasks:
        if registration is not None:

            async def register() -> None:
                await registration.until_superseded()
                tasks.cancel_scope.cancel()

            tasks.start_soon(register)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                if registration is not None:
                    await registration.say_goodbye()
                tasks.cancel_scope.cancel()
                return


def _write_privately(path: Path, announcement: Announcement) -> None:
    """Write the file whole or not at all, readable by this user only: it holds the token."""
    partial = path.with_name(f"{path.name}.partial")
    partial.touch(mode=0o600)
    partial.write_bytes(msgspec.json.encode(announcement))
    partial.rename(path)


if __name__ == "__main__":
    main()
