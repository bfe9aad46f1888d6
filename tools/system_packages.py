"""Install the system packages that tests drive; where that is not possible, say what will be skipped."""

import argparse
import contextlib
import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

INSTALL_TIMEOUT_S = 600
NO_SERVICES = Path("/usr/sbin/policy-rc.d")
"""While this says 101, Debian starts no service that it installs: a test run must not open port 22."""


class Package(NamedTuple):
    """A Debian package, a command or file pattern that shows it is there, and what needs it."""

    name: str
    sign: str
    why: str


TEST = (
    Package("openssh-server", "/usr/sbin/sshd", "pools reached over SSH"),
    Package("openssh-client", "ssh", "pools reached over SSH"),
    Package("iproute2", "ip", "network namespaces that a test can cut"),
    Package("iptables", "iptables", "dropping packets between a platform and a pool"),
    Package("nftables", "nft", "networks of tasks"),
    Package("iputils-ping", "ping", "telling a cut network from a slow one"),
    Package("slurmctld", "/usr/sbin/slurmctld", "a Slurm site"),
    Package("slurmd", "/usr/sbin/slurmd", "a Slurm site"),
    Package("slurm-client", "sbatch", "a Slurm site"),
    Package("munge", "/usr/sbin/munged", "a Slurm site"),
    Package("runc", "runc", "containers on hosts, where crun does not know this mix of control groups"),
    Package("podman", "podman", "containers on hosts"),
    Package("busybox-static", "/bin/busybox", "the image that containers of the tests run"),
    Package("postgresql", "/usr/lib/postgresql/*/bin/initdb", "the same tests on PostgreSQL as on SQLite"),
)
ENGINES = (
    *TEST,
    Package("docker.io", "dockerd", "containers on hosts whose engine is docker"),
    Package("chromium", "chromium", "the console, driven as a person would"),
)
PROFILES = {"test": TEST, "engines": ENGINES}


def main() -> int:
    """Install what the profile lacks; a package that cannot be had is a visible skip, not a failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", choices=PROFILES)
    packages = PROFILES[parser.parse_args().profile]
    lacking = missing(packages)
    if lacking:
        reason = why_not() or install(lacking)
        for package in missing(lacking):
            print(f"skipped: {package.name}, needed for {package.why} ({reason})")
    there = len(packages) - len(missing(packages))
    print(f"system packages: {there} of {len(packages)} there")
    return 0


def missing(packages: tuple[Package, ...]) -> tuple[Package, ...]:
    """Return those whose sign is not found."""
    return tuple(package for package in packages if not present(package.sign))


def present(sign: str) -> bool:
    """Return whether a command is on the path, or a file matches the pattern."""
    return bool(glob.glob(sign)) if sign.startswith("/") else shutil.which(sign) is not None  # noqa: PTH207 - an absolute pattern


def why_not() -> str:
    """Return what stands in the way of installing; empty when nothing does."""
    if shutil.which("apt-get") is None:
        return "this system has no apt-get"
    return "" if os.geteuid() == 0 else "not root"


def install(packages: tuple[Package, ...]) -> str:
    """Install *packages*, each on its own so that one that fails leaves the rest; return what apt-get said last."""
    print(f"· installing {', '.join(package.name for package in packages)}", flush=True)
    said = apt_get("update")
    with services_held_back():
        for package in packages:
            said = apt_get("install", "--yes", "--no-install-recommends", package.name) or said
    return said or "apt-get installed it, and it is still not there"


@contextlib.contextmanager
def services_held_back() -> Generator[None]:
    """Keep what is installed from starting, unless the system has a rule of its own for that."""
    if NO_SERVICES.exists():
        yield
        return
    NO_SERVICES.write_text("#!/bin/sh\nexit 101\n")
    NO_SERVICES.chmod(0o755)
    try:
        yield
    finally:
        NO_SERVICES.unlink()


def apt_get(*arguments: str) -> str:
    """Run apt-get quietly; return the last line it said when it failed."""
    try:
        done = subprocess.run(
            ["apt-get", "-qq", "-o", f"DPkg::Lock::Timeout={INSTALL_TIMEOUT_S}", *arguments],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"apt-get {arguments[0]} took over {INSTALL_TIMEOUT_S} s"
    lines = done.stderr.strip().splitlines() or [f"apt-get ended with {done.returncode}"]
    return lines[-1] if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
