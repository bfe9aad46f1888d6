"""A newer agent comes over the same connection; the daemon becomes it without touching a task."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.frames import INITIAL_CREDIT
from yunhe.agent.protocol.refusals import CONFLICT, Refusal, invalid

_TRY_WITHIN_S = 20.0


async def receive_agent(call: Call, root: str) -> str:
    """Receive the file of another agent, check that it runs here, and return its path."""
    data = b""
    await call.grant(INITIAL_CREDIT)
    while len(data) <= call.body["size_bytes"]:
        piece = await call.receive()
        if not piece:
            break
        data += piece
        await call.grant(1)
    digest = hashlib.sha256(data).hexdigest()
    if digest != call.body["digest"] or len(data) != call.body["size_bytes"]:
        raise invalid("digest", f"{len(data)} bytes with {digest} came", call.body["digest"])
    return _install(data, os.path.join(root, f"agent-{digest[:16]}.pyz"))


def _install(data: bytes, path: str) -> str:
    """Write the file and let it show that it runs here, before anything depends on it."""
    with open(f"{path}.new", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    tried = subprocess.run(
        [sys.executable, "-I", "-S", f"{path}.new", "version"],
        capture_output=True,
        timeout=_TRY_WITHIN_S,
        check=False,
    )
    if tried.returncode != 0:
        os.unlink(f"{path}.new")
        raise Refusal(CONFLICT, "The agent that was sent does not run on this node; this one stays.")
    os.replace(f"{path}.new", path)
    return path
