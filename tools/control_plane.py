"""Build a real Kubernetes control plane and kubelet for the tests, once; later calls find it in the user's cache.

``KUBEBUILDER_ASSETS`` names a folder with ready programs instead (kube-apiserver, etcd; kube-scheduler,
kube-controller-manager and kubelet where there are any).
"""

import contextlib
import fcntl
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "tests" / "engines" / "kubernetes" / "control_plane"
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet")
REPORT_EVERY_S = 15.0


class NoControlPlaneError(Exception):
    """There is none, and this is what stands in the way."""


def main() -> int:
    """Build what is missing; return 0 even where that cannot be done: the tests then say what they skip."""
    try:
        if assets() is None:
            print(f"Kubernetes control plane: {build()}")
    except NoControlPlaneError as why:
        print(f"skipped: the Kubernetes control plane ({why})")
    return 0


def programs() -> dict[str, list[str]]:
    """Return how each program is called; those that a folder of ready programs lacks are left out."""
    folder = assets()
    if folder is not None:
        found = {name: [str(folder / name)] for name in PROGRAMS if (folder / name).exists()}
        if not {"etcd", "kube-apiserver"} <= found.keys():
            raise NoControlPlaneError(f"KUBEBUILDER_ASSETS={folder} has no etcd and kube-apiserver")
        return found
    if not target().exists():
        raise NoControlPlaneError("it is not built; `python tools/control_plane.py` builds it")
    return {name: [str(target()), name] for name in PROGRAMS}


def assets() -> Path | None:
    """Return the folder of ready programs that the environment names."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    return Path(named) if named else None


def kubernetes_version() -> str:
    """Return the version that the Go module asks for."""
    found = re.search(r"^\s*k8s\.io/kubernetes v(\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise NoControlPlaneError("go.mod names no k8s.io/kubernetes")
    return found.group(1)


def target() -> Path:
    """Return where the program lies: another source, Kubernetes or Go makes another one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "yunhe"
    digest = hashlib.sha256()
    for file in sorted(SOURCE.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    name = f"kubernetes-{kubernetes_version()}-{_go_version()}-{digest.hexdigest()[:8]}"
    return cache / name / "control-plane"


def build() -> Path:
    """Build the program unless it is there; of two who want it at once, the second waits for the first."""
    program = target()
    program.parent.mkdir(parents=True, exist_ok=True)
    with _alone(program.parent / "lock"):
        if not program.exists():
            fresh = program.with_suffix(".new")
            _compile(fresh)
            fresh.replace(program)
    return program


def _go_version() -> str:
    go = shutil.which("go")
    if go is None:
        raise NoControlPlaneError("Go is not installed")
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True, timeout=60)
    return said.stdout.strip()


@contextlib.contextmanager
def _alone(lock: Path) -> Generator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(program: Path) -> None:
    """Compile at the lowest priority: it takes minutes, and others use the machine."""
    major, minor, _ = kubernetes_version().split(".", 2)
    stamps = {"gitVersion": f"v{kubernetes_version()}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())
    command = ["go", "build", "-v", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", str(program), "."]
    began_s = time.monotonic()
    with subprocess.Popen(
        ["nice", "-n", "19", *command],
        cwd=SOURCE,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"},
        stderr=subprocess.PIPE,
        text=True,
    ) as compiler:
        assert compiler.stderr is not None
        said = _report(compiler.stderr, began_s)
    if compiler.returncode:
        raise NoControlPlaneError("go build failed: " + " / ".join(said[-3:]))
    cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"built in {time.monotonic() - began_s:.0f} s, {cpu_s.ru_utime + cpu_s.ru_stime:.0f} CPU-seconds, "
        f"{program.stat().st_size >> 20} MiB",
        flush=True,
    )


def _report(lines: Iterator[str], began_s: float) -> list[str]:
    """Say now and then how many packages are compiled, out of about 2,400; return the last lines heard."""
    heard: list[str] = []
    reported_s = float("-inf")
    for line in lines:
        heard.append(line.strip())
        now_s = time.monotonic()
        if now_s - reported_s >= REPORT_EVERY_S:
            reported_s = now_s
            print(
                f"· building Kubernetes {kubernetes_version()}: {len(heard)} packages of about 2,400, "
                f"{now_s - began_s:.0f} s",
                flush=True,
            )
    return heard


if __name__ == "__main__":
    sys.exit(main())
