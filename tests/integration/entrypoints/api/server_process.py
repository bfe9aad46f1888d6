"""A server in a process of its own, with a fake engine."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from support.repository import REPOSITORY
from yunhe.entrypoints.client import Client
from yunhe.runtime.settings import Settings

PROGRAM = """
import sys, msgspec
from functools import partial
from yunhe.entrypoints.api.serve import serve
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import running
settings = msgspec.json.decode(sys.argv[1], type=Settings, dec_hook=lambda kind, value: kind(value))
serve(settings, start=partial(running, kinds={"fake": FakeKind()}))
"""


@contextmanager
def process(settings: Settings, before: str = "") -> Generator[subprocess.Popen[bytes]]:
    """Run a server, after the lines of Python *before*."""
    argument = msgspec.json.encode(settings, enc_hook=str).decode()
    source = str(REPOSITORY / "src")
    server = subprocess.Popen(
        [sys.executable, "-c", before + PROGRAM, argument],
        env={**os.environ, "PYTHONPATH": source},
        stderr=subprocess.PIPE,
    )
    try:
        yield server
    finally:
        if server.poll() is None:
            server.kill()
        server.communicate()


def wait_ready(url: str, verify: bool | Path = True) -> None:
    with Client(url, verify=verify, patience_s=40) as client:
        assert client.ready().ready
