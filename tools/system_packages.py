"""Install the system packages that tests drive; where that is not possible, say what will be skipped."""

import argparse
import contextlib
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

INSTALL_TIMEOUT_S = 600
NO_SERVICES = Path("/usr/sbin/policy-rc.d")
"""While this says 101, Debian starts no service that it installs: a test run must not open port 22."""
SOURCES = Path("/etc/apt")
RELEASE = Path("/etc/os-release")
UNPACKED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "yunhe" / "packages"
"""Where packages of suites that the system does not use are unpacked; nothing of the system is changed for them."""


class Package(NamedTuple):
    """A Debian package, a command or file pattern that shows it is there, and what needs it."""

    name: str
    sign: str
    why: str
    suite: str = ""
    """Which suite of the distribution has it, where its own has not: ``backports``."""


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
    Package("runsc", "runsc", "tasks in sandboxes", suite="backports"),
    Package("postgresql", "/usr/lib/postgresql/*/bin/initdb", "the same tests on PostgreSQL as on SQLite"),
)
ENGINES = (
    *TEST,
    Package("docker.io", "dockerd", "containers on hosts whose engine is docker"),
    Package("containerd", "containerd", "a real Kubernetes node"),
    Package("containernetworking-plugins", "/usr/lib/cni/bridge", "a real Kubernetes node"),
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
    """Return whether a command is on the path or unpacked, or a file matches the pattern."""
    if sign.startswith("/"):
        return bool(glob.glob(sign))  # noqa: PTH207 - an absolute pattern
    return find(sign) is not None


def find(command: str) -> str | None:
    """Return where a command lies: on the path, or where packages are unpacked."""
    return shutil.which(command) or shutil.which(command, path=str(UNPACKED / "usr" / "bin"))


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
            if package.suite:
                said = unpack(package) or said
            else:
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


def unpack(package: Package) -> str:
    """Download *package* from its suite and unpack it; return what kept it from that."""
    release = re.search(r"^VERSION_CODENAME=(\w+)$", RELEASE.read_text(), re.MULTILINE)
    archive = archive_of(release[1]) if release else ""
    if not archive or release is None:
        return f"no archive that has {package.suite} is known to this system"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("lists/partial", "cache/archives/partial"):
            (Path(folder) / name).mkdir(parents=True)
        (Path(folder) / "sources.list").write_text(f"deb {archive} {release[1]}-{package.suite} main\n")
        options = [
            *("-o", f"Dir::Etc::sourcelist={folder}/sources.list", "-o", "Dir::Etc::sourceparts=-"),
            *("-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"),
            *("-o", "APT::Sandbox::User=root"),
        ]
        said = apt_get(*options, "update") or apt_get(*options, "download", package.name, folder=folder)
        for file in Path(folder).glob("*.deb"):
            UNPACKED.mkdir(parents=True, exist_ok=True)
            subprocess.run(["dpkg", "-x", str(file), str(UNPACKED)], check=True, timeout=INSTALL_TIMEOUT_S)
    return said


def archive_of(codename: str) -> str:
    """Return the archive of the distribution as the system's own sources name it, with its key; empty if they do not."""
    for path in sorted(SOURCES.glob("sources.list.d/*.sources")):
        for part in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^([\w-]+):[ \t]*(.+)$", part, re.MULTILINE))
            if codename in fields.get("Suites", "").split() and "deb" in fields.get("Types", "").split():
                key = f"[signed-by={fields['Signed-By']}] " if "Signed-By" in fields else ""
                return f"{key}{fields['URIs'].split()[0]}"
    for path in [SOURCES / "sources.list", *sorted(SOURCES.glob("sources.list.d/*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else ():
            found = re.match(rf"deb\s+((?:\[[^]]*\]\s+)?\S+)\s+{codename}\s", line)
            if found:
                return found[1]
    return ""


def apt_get(*arguments: str, folder: str | None = None) -> str:
    """Run apt-get quietly, in *folder* if told so; return the last line it said when it failed."""
    try:
        done = subprocess.run(
            ["apt-get", "-qq", "-o", f"DPkg::Lock::Timeout={INSTALL_TIMEOUT_S}", *arguments],
            cwd=folder,
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
