"""A real node for a test cluster: kubelet, containerd, runc and CNI in network, process and mount namespaces of their own.

One process anchors the namespaces. It is process 1 there: killing it ends containerd, every pod and the kubelet, and with
them their mounts and links. Nothing leaves the node: it has no default route. ``/run``, ``/var/lib`` and ``/var/log`` are
its own, and so are the kernel's settings that a kubelet changes.
"""

import contextlib
import hashlib
import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import yaml

from engines.kubernetes.cluster import Cluster, Options, cluster
from support.containers import root_files
from tools.control_plane import programs

READY_TIMEOUT_S = 120.0
END_TIMEOUT_S = 20.0
IMAGE = "docker.io/local/busybox:1"
"""The only image there is: pods name it, and it also holds their namespaces."""
NODE = "real-1"
GROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
PLUGINS = Path("/usr/lib/cni")
ANCHOR = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""
TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet sets for the whole machine; on its node copies that are so already are bound over them."""


class RealNode:
    """One node; ``real_cluster()`` starts and ends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0
        self._anchor = 0
        self._unshare: subprocess.Popen[bytes] | None = None
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def host_address(self) -> str:
        """Return the machine's address on the link to the node."""
        return f"198.19.{self.number}.1"

    @property
    def address(self) -> str:
        """Return the node's own address."""
        return f"198.19.{self.number}.2"

    @property
    def _group(self) -> str:
        return f"yunhe-node-{self.number}"

    # Life and death

    def open(self) -> None:
        """Make the namespaces and the link, so that an API server can listen on it."""
        words = ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--mount-proc"]
        words += ["--propagation", "private", sys.executable, "-I", "-S", "-c", ANCHOR]
        with (self.folder / "unshare.log").open("wb") as log:
            self._unshare = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self._unshare.stdout is not None
        with self._unshare.stdout as said:
            assert said.readline() == b"up\n", self.log("unshare")
        pid = self._unshare.pid
        self._anchor = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        self._add_link()
        link = self._link()
        _run("ip", "addr", "add", f"{self.host_address}/24", "dev", link)
        _run("ip", "link", "set", link, "up")
        for controller in CONTROLLERS:
            (GROUPS / controller / self._group).mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            (GROUPS / "cpuset" / self._group / name).write_text((GROUPS / "cpuset" / name).read_text())
        self._prepare()

    def _add_link(self) -> None:
        """Add a link with a number that no other node on this machine has."""
        while True:
            self.number = 1 + secrets.randbelow(250)
            words = ["ip", "link", "add", self._link(), "type", "veth", "peer", "name", "node0"]
            if not subprocess.run([*words, "netns", str(self._anchor)], check=False, timeout=10).returncode:
                return

    def _link(self) -> str:
        return f"yunhe-kn{self.number}"

    def _prepare(self) -> None:
        bind = [
            f"mount --bind {self._write('tunables/' + Path(name).name, value)} /proc/sys/{name}"
            for name, value in TUNABLES.items()
        ]
        (self.folder / "kubelet").mkdir()
        script = [
            "mount --make-rshared /",
            f"hostname {NODE}",
            "mount -t tmpfs tmpfs /run; mkdir -p /run/netns /run/lock",
            "mount -t tmpfs tmpfs /var/log; mount -t tmpfs tmpfs /var/lib",
            "mkdir -p /var/log/containers /var/log/pods /var/lib/kubelet /var/lib/cni",
            f"mount --bind {self.folder / 'kubelet'} /var/lib/kubelet",
            *bind,
            f"ip link set lo up; ip addr add {self.address}/24 dev node0; ip link set node0 up",
        ]
        _run(*self._inside("sh", "-ec", "\n".join(script)))

    def start(self, made: Cluster) -> None:
        """Start the node and wait until the cluster calls it ready."""
        self._start("containerd", "containerd", "-c", str(self._write("containerd.toml", self._containerd())))
        self._write("cni/10-bridge.conflist", json.dumps(self._network()))
        socket = Path(f"/proc/{self._anchor}/root/run/containerd/containerd.sock")
        self._wait_until(socket.is_socket, "containerd listens")  # asked too early, ctr waits for seconds
        image = self.folder / "image.tar"
        image.write_bytes(image_archive())
        _run(*self._inside("ctr", "-n", "k8s.io", "images", "import", str(image)))
        self._start(
            "kubelet",
            *programs()["kubelet"],
            f"--config={self._write('kubelet.yaml', yaml.safe_dump(self._kubelet(made)))}",
            f"--kubeconfig={made.kubeconfig(by_certificate=True)}",
            f"--hostname-override={NODE}",
            f"--node-ip={self.address}",
            f"--cert-dir={self.folder / 'kubelet-pki'}",
        )
        with made.client() as client:
            self._wait_until(
                lambda: _is_ready(client.get(f"/api/v1/nodes/{NODE}").json()), "the node is ready"
            )

    def close(self) -> None:
        """End the node and all that runs on it, and remove its groups and link."""
        if self._anchor:
            os.kill(self._anchor, signal.SIGKILL)
        for process in (*self._running, *([self._unshare] if self._unshare else [])):
            process.wait(END_TIMEOUT_S)
        if self.number:
            subprocess.run(["ip", "link", "del", self._link()], capture_output=True, check=False, timeout=10)
        until_s = time.monotonic() + END_TIMEOUT_S
        while self._has_groups() and time.monotonic() < until_s:
            time.sleep(0.1)  # the kernel may take a moment to let go of dead members

    def log(self, name: str) -> str:
        """Return what a program has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _has_groups(self) -> bool:
        """Remove what is empty of the node's groups; return whether any is left."""
        tops = [GROUPS / controller / self._group for controller in (*CONTROLLERS, "unified")]
        for top in tops:
            for path, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(path).rmdir()
        return any(top.exists() for top in tops)

    # How each program is called

    def _containerd(self) -> str:
        cri = 'plugins."io.containerd.grpc.v1.cri"'
        runtime = f"{cri}.containerd.runtimes.runc"
        return f"""
version = 2
root = "{self.folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "/run/containerd/containerd.sock"
[{cri}]
sandbox_image = "{IMAGE}"
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
[{cri}.cni]
bin_dir = "{PLUGINS}"
conf_dir = "{self.folder}/cni"
[{cri}.containerd]
snapshotter = "native"
default_runtime_name = "runc"
[{runtime}]
runtime_type = "io.containerd.runc.v2"
[{runtime}.options]
SystemdCgroup = false
"""

    def _network(self) -> dict[str, object]:
        ranges = [[{"subnet": f"10.244.{self.number}.0/24"}]]
        addresses = {"type": "host-local", "ranges": ranges, "dataDir": "/run/cni-addresses"}
        bridge = {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "ipam": addresses}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}

    def _kubelet(self, made: Cluster) -> dict[str, object]:
        pair = made.authority.server("kubelet", self.address)
        kept = (
            "memory.available",
            "nodefs.available",
            "nodefs.inodesFree",
            "imagefs.available",
            "pid.available",
        )
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(made.authority.pair.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pair.certificate),
            "tlsPrivateKeyFile": str(pair.key),
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._group}",
            "failSwapOn": False,
            "failCgroupV1": False,
            "oomScoreAdj": 0,
            "resolvConf": str(self._write("resolv.conf", "")),
            "podLogsDir": str(self.folder / "pod-logs"),
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "nodeStatusUpdateFrequency": "2s",
            "syncFrequency": "5s",
            "evictionHard": dict.fromkeys((*kept, "imagefs.inodesFree"), "0%"),
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        }

    # How

    def _inside(self, *command: str) -> list[str]:
        # "ip netns exec" would mount another /sys, without control groups.
        return ["nsenter", "-t", str(self._anchor), "-n", "-p", "-m", "-u", "--", *command]

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(self._inside(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def _wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + READY_TIMEOUT_S
        while not is_so():
            if any(process.poll() is not None for process in self._running) or time.monotonic() > until_s:
                said = "\n".join(file.read_text()[-2000:] for file in self.folder.glob("*.log"))
                raise RuntimeError(f"it is not so that {what}: {said}")
            time.sleep(0.1)


def image_archive() -> bytes:
    """Return what ``ctr images import`` takes: busybox, which waits unless a pod says otherwise."""
    layer = root_files()
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    about = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": about, "RepoTags": [IMAGE], "Layers": [f"{digest}.tar"]}]
    files = {about: config, f"{digest}.tar": layer, "manifest.json": json.dumps(manifest).encode()}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


def why_no_real_node() -> str:
    """Return what stands in the way of a real node here; empty: nothing."""
    missing = [name for name in ("containerd", "ctr", "runc", "nsenter", "unshare") if not shutil.which(name)]
    if os.geteuid() != 0:
        return "a real node needs root, for namespaces and control groups"
    if missing or not (PLUGINS / "bridge").exists():
        return f"a real node needs {', '.join(missing or ['containernetworking-plugins'])}"
    if not (GROUPS / "cpuacct").is_dir():
        return "a real node is made here with control groups of version 1 only"
    return "" if "kubelet" in programs() else "the folder of ready programs has no kubelet"


@contextlib.contextmanager
def real_cluster() -> Generator[Cluster]:
    """Run one cluster with one real node; skip the test where there can be none."""
    why = why_no_real_node()
    if why:
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="yunhe-node-"))
    node = RealNode(folder)
    try:
        node.open()
        with cluster(Options(address=node.host_address)) as made:
            node.start(made)
            yield made
    finally:
        node.close()
        shutil.rmtree(folder, ignore_errors=True)


def _is_ready(node: dict[str, object]) -> bool:
    status = node.get("status")
    conditions = status.get("conditions", []) if isinstance(status, dict) else []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")
