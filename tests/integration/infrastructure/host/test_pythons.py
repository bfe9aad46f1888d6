"""The agent on every Python that is installed here, the oldest it is written for among them."""

import io
import shutil
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from integration.infrastructure.host.orders import ended, log_of, order_for, until
from yunhe.conformance.caller import archive_of, chunks_of
from yunhe.infrastructure.contract.model import ExecRequest, Upload
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import LocalHost

pytestmark = pytest.mark.anyio


def interpreter(version: str) -> str:
    """Return a Python of *version*, from the path or from pyenv; skip where there is none."""
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *map(str, pyenv)):
        if candidate is not None:
            tried = subprocess.run([candidate, "-c", ""], capture_output=True, check=False)
            if tried.returncode == 0:
                return candidate
    pytest.skip(f"no Python {version} here")


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.12", "3.13"])
async def test_the_agent_serves_on_this_python(root: Path, version: str) -> None:
    async with HostEngine(LocalHost(root=str(root), python=interpreter(version))) as engine:
        assert (await engine.hello())["python"].startswith(version)
        order = await order_for(engine, "cat data/a; echo; echo out > out.txt; sleep 1; exit 3")
        archive = archive_of({"a": b"alpha"})
        upload = Upload(
            allocation_id=order.allocation_id,
            token=1,
            project_id=order.project_id,
            path="data",
            digest=sha256(archive).hexdigest(),
            size_bytes=len(archive),
        )
        await engine.put_archive(upload, chunks_of(archive))
        await engine.launch(order)
        await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
        async with engine.exec(order.allocation_id, ExecRequest(argv=("cat", "data/a"))) as session:
            assert await session.receive() == b"alpha"
        seen = await ended(engine, order.allocation_id)
        assert (seen.exit_code, await log_of(engine, order.allocation_id)) == (3, b"alpha\n")
        packed = [piece async for piece in engine.get_archive(order.allocation_id, ("out.txt",))]
        with tarfile.open(fileobj=io.BytesIO(b"".join(packed)), mode="r:gz") as tar:
            assert tar.getnames() == ["out.txt"]
        await engine.release(order.allocation_id, 1)
