"""A container engine with storage of its own and one small image; what the tests of images run on."""

import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest

IMAGE = "localhost/yunhe-test:1"
BUSYBOX = Path("/bin/busybox")
_STORAGE = '[storage]\ndriver = "overlay"\nrunroot = "{0}/run"\ngraphroot = "{0}/graph"\n'
_ENGINE = '[engine]\ntmp_dir = "{0}/tmp"\nlock_type = "file"\nevents_logger = "file"\nruntime = "runc"\n'


class ContainerStore(NamedTuple):
    """What an agent must have in its environment to use this store, and a way to ask the engine itself."""

    environment: dict[str, str]

    def podman(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run podman on this store; return what it said."""
        done = subprocess.run(
            ["podman", *arguments],
            env={**os.environ, **self.environment},
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def containers(self) -> list[str]:
        """Return the names of all containers, running or not."""
        return self.podman("ps", "--all", "--format", "{{.Names}}").split()


def why_no_containers() -> str:
    """Return why there can be no containers here; empty when there can."""
    if os.geteuid() != 0:
        return "needs root to enter containers"
    if shutil.which("podman") is None:
        return "needs podman (tools/system_packages.py test installs it)"
    if shutil.which("runc") is None:
        return "needs runc (tools/system_packages.py test installs it)"
    static = BUSYBOX.exists() and b"ld-linux" not in BUSYBOX.read_bytes()[:4096]
    return "" if static else "needs busybox-static for the image"


@contextmanager
def container_store() -> Generator[ContainerStore, None, None]:
    """Yield a store with the image in it; skip where there can be none."""
    reason = why_no_containers()
    if reason:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="yunhe-containers-"))
    files = {"CONTAINERS_STORAGE_CONF": _STORAGE, "CONTAINERS_CONF": _ENGINE}
    environment = {name: str(folder / name.lower()) for name in files}
    for name, text in files.items():
        Path(environment[name]).write_text(text.format(folder))
    store = ContainerStore(environment)
    try:
        store.podman("import", "--change", "ENV GREETING=from-the-image", "-", IMAGE, stdin=root_files())
        yield store
    finally:
        _wait_for_engine(str(folder))
        store.podman("rm", "--force", "--all", "--time", "0")
        _wait_for_engine(str(folder))
        _unmount(folder)
        shutil.rmtree(folder)


@contextmanager
def docker_environment() -> Generator[dict[str, str], None, None]:
    """Yield what an agent must have in its environment to use a docker engine of our own with the image in it."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("dockerd", "docker", "containerd", "runc"))):
        pytest.skip("needs root and docker (tools/system_packages.py engines installs it)")
    folder = Path(tempfile.mkdtemp(prefix="yunhe-docker-"))
    (folder / "podman").write_text("#!/bin/sh\necho this test is of docker >&2\nexit 1\n")
    (folder / "podman").chmod(0o755)
    address = f"unix://{folder}/docker.sock"
    own = {"PATH": f"{folder}:{os.environ['PATH']}", "DOCKER_HOST": address}
    words = ["dockerd", f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
    words += [f"--host={address}", "--bridge=none", "--iptables=false"]
    words += ["--exec-opt=native.cgroupdriver=cgroupfs"]
    with (folder / "log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as daemon:
        try:
            environment = {**os.environ, **own}
            _wait_for_docker(environment)
            load = ["docker", "import", "--change", "ENV GREETING=from-the-image", "-", IMAGE]
            subprocess.run(load, env=environment, input=root_files(), check=True, capture_output=True)
            yield own
        finally:
            daemon.terminate()
            daemon.wait(30)
            _unmount(folder)
            shutil.rmtree(folder)


def _wait_for_docker(environment: dict[str, str], within_s: float = 30.0) -> None:
    until = time.monotonic() + within_s
    while subprocess.run(["docker", "info"], env=environment, capture_output=True, check=False).returncode:
        assert time.monotonic() < until, "dockerd does not answer"
        time.sleep(0.2)


def root_files() -> bytes:
    """Return a tar of the smallest system there is: busybox under each of its names."""
    names = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("shared", 0o1777)):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, mode
            tar.addfile(member)
        tar.add(BUSYBOX, "bin/busybox")
        for name in names:
            if name != "busybox":
                member = tarfile.TarInfo(f"bin/{name}")
                member.type, member.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(member)
        data = b"this is the image\n"
        member = tarfile.TarInfo("etc/where")
        member.size, member.mode = len(data), 0o644
        tar.addfile(member, BytesIO(data))
    return buffer.getvalue()


def _wait_for_engine(folder: str, within_s: float = 20.0) -> None:
    """Wait for what the engine still does in the background: a container that ended is removed after the fact."""
    until = time.monotonic() + within_s
    while time.monotonic() < until and any(folder in words for words in _command_lines()):
        time.sleep(0.1)


def _command_lines() -> Generator[str, None, None]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


def _unmount(folder: Path) -> None:
    """Unmount what the engine left mounted below *folder*, the innermost first."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in sorted((point for point in points if point.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", point], check=False, capture_output=True)
