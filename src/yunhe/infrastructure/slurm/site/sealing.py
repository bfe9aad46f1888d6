"""Secrets on their way to a job, in two halves that are nothing alone.

Slurm writes a job's environment to the controller's disk, and a file in our directory lies on the site's. So the
environment carries a key, the file what it seals; the job removes the file when it has read it, and what the
controller kept is then noise.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os

from yunhe.agent.durable import read_json, replace_json
from yunhe.agent.protocol.refusals import UNSUPPORTED, Refusal
from yunhe.agent.runs.directory import Run

KEY = "YUNHE_SECRETS_KEY"


def split_secrets(run: Run, secrets: dict[str, str]) -> str:
    """Seal the secrets in the run's directory; return the key to them, for the job's environment."""
    key = os.urandom(32)
    sealed = _mask(json.dumps(secrets).encode(), key)
    replace_json(run.at("sealed.json"), {"sealed": base64.b64encode(sealed).decode()})
    return key.hex()


def join_secrets(run: Run, key: str) -> dict[str, str]:
    """Return the secrets, and remove our half of them."""
    if not key:
        return {}
    half = read_json(run.at("sealed.json"))
    if half is None:
        raise Refusal(UNSUPPORTED, "The secrets of this job have been read already.")
    os.unlink(run.at("sealed.json"))
    return json.loads(_mask(base64.b64decode(half["sealed"]), bytes.fromhex(key)))


def _mask(data: bytes, key: bytes) -> bytes:
    stream = hashlib.shake_256(key).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream))  # noqa: B905 - Python 3.8
