"""Real Kubernetes clusters on loopback: etcd and kube-apiserver, with scheduler and controllers where wanted.

Every process is started and ended by its PID, everything written lies in one temporary folder, and leaving the
``with`` block ends and removes all of it. ``tools/control_plane.py`` builds the programs.
"""

import base64
import contextlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from engines.kubernetes.certificates import Authority, Pair, signing_key
from tools.control_plane import programs

READY_TIMEOUT_S = 120.0
END_TIMEOUT_S = 20.0
ADMIN = "admin"
"""May do everything."""
READER = "reader"
"""May look at pods and nodes, and nothing else: whoever needs more is refused by the API server itself."""
TOKENS = {ADMIN: "token-of-admin", READER: "token-of-reader"}
GROUPS = {ADMIN: ("system:masters",), READER: ()}


class Options(NamedTuple):
    """What of a control plane to run, and how."""

    scheduler: bool = True
    controllers: bool = True
    watch_cache: bool = True
    """Without one, watches read etcd itself, so that a compaction alone expires their resource versions."""
    flags: tuple[str, ...] = ()
    """More flags for the API server."""
    address: str = "127.0.0.1"
    """Where the API server listens; a node with a network of its own cannot reach loopback."""


WHOLE = Options()


class Cluster:
    """One control plane; ``cluster()`` starts and ends it."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder
        self.options = options
        self.authority = Authority(folder)
        self.port, self._etcd_port, self._peer_port = free_ports(3)
        self.url = f"https://{options.address}:{self.port}"
        self.etcd_url = f"http://127.0.0.1:{self._etcd_port}"
        self.server_pair = self.authority.server("server", options.address)
        self.kubelet_client = self.authority.client("kube-apiserver", ("system:masters",))
        self._certificates = {user: self.authority.client(user, GROUPS[user]) for user in TOKENS}
        self._accounts = signing_key(folder)
        self._programs = programs()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    # What a client needs

    def kubeconfig(self, user: str = ADMIN, *, server: str = "", by_certificate: bool = False) -> Path:
        """Return a kubeconfig file for *user*, by token or by certificate; *server*: through a proxy."""
        how = "certificate" if by_certificate else "token"
        content = kubeconfig(
            server or self.url,
            self.authority.pair.certificate,
            self._certificates[user] if by_certificate else TOKENS[user],
        )
        path = self.folder / f"{user}-{how}{'-proxied' if server else ''}.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    def client(self, user: str = ADMIN) -> httpx.Client:
        """Return an HTTP client of the API server."""
        return httpx.Client(
            base_url=self.url,
            verify=self.tls(),
            headers={"authorization": f"Bearer {TOKENS[user]}"},
            timeout=30.0,
            trust_env=False,
        )

    def tls(self) -> ssl.SSLContext:
        """Return what trusts this cluster's servers."""
        return ssl.create_default_context(cafile=str(self.authority.pair.certificate))

    # Life and death

    def start(self) -> None:
        """Start all of it and wait until the API server is ready and every controller has begun."""
        (self.folder / "tokens.csv").write_text(
            "".join(f'{TOKENS[user]},{user},{user},"{",".join(GROUPS[user])}"\n' for user in TOKENS)
        )
        self._start("etcd", *self._etcd_flags())
        self.start_api_server()
        self._grant_reader()
        if self.options.controllers and "kube-controller-manager" in self._programs:
            self._start("kube-controller-manager", *self._controller_flags())
        if self.options.scheduler and "kube-scheduler" in self._programs:
            self.start_scheduler()
        if "kube-controller-manager" in self._running:
            self._wait_for_default_account()

    def start_api_server(self) -> float:
        """Start the API server on the port it always had; return the seconds until it was ready."""
        began_s = time.monotonic()
        self._start("kube-apiserver", *self._api_server_flags())
        with self.client() as client:
            self._wait_until(lambda: _answers(client, "/readyz"), "the API server is ready")
        return time.monotonic() - began_s

    def start_scheduler(self) -> None:
        """Start the scheduler, where it was left out at first: what waits for a node is bound from now on."""
        self._start("kube-scheduler", *self._scheduler_flags())

    def stop_api_server(self) -> None:
        """End the API server as an upgrade would: it closes its watches and lets go of the port."""
        self._end("kube-apiserver")

    def kill_api_server(self) -> None:
        """End the API server as a crash would."""
        self._running["kube-apiserver"].kill()
        self._end("kube-apiserver")

    def restart_api_server(self) -> float:
        """Kill and start; return the seconds until it was ready again."""
        self.kill_api_server()
        return self.start_api_server()

    def compact(self) -> int:
        """Make etcd forget every past version of every object; return the revision it kept."""
        with httpx.Client(base_url=self.etcd_url, timeout=30.0, trust_env=False) as etcd:
            key = base64.b64encode(b"compact_rev_key").decode()
            header: dict[str, str] = (
                etcd.post("/v3/kv/range", json={"key": key}).raise_for_status().json()["header"]
            )
            revision = int(header["revision"])
            etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True}).raise_for_status()
        return revision

    def expire_resource_versions(self) -> None:
        """Make every resource version handed out so far too old to watch from."""
        self.compact()
        if self.options.watch_cache:  # it remembers what etcd forgot, until it is filled anew
            self.restart_api_server()

    def close(self) -> None:
        """End every process, last started first."""
        for name in reversed(list(self._running)):
            self._end(name)

    # Figures and failures

    def pids(self) -> dict[str, int]:
        """Return the PID of each running program."""
        return {name: process.pid for name, process in self._running.items()}

    def resident_mib(self) -> dict[str, int]:
        """Return the resident memory of each running program."""
        return {name: _resident_mib(pid) for name, pid in self.pids().items()}

    def log(self, name: str) -> str:
        """Return what a program has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # How each program is called

    def _etcd_flags(self) -> list[str]:
        peer = f"http://127.0.0.1:{self._peer_port}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            *(
                []
                if _is_ours(self._programs)
                else [f"--advertise-client-urls={self.etcd_url}", "--unsafe-no-fsync"]
            ),
        ]

    def _api_server_flags(self) -> list[str]:
        return [
            f"--etcd-servers={self.etcd_url}",
            f"--bind-address={self.options.address}",
            f"--advertise-address={self.options.address}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self.server_pair.certificate}",
            f"--tls-private-key-file={self.server_pair.key}",
            f"--client-ca-file={self.authority.pair.certificate}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--kubelet-certificate-authority={self.authority.pair.certificate}",
            f"--kubelet-client-certificate={self.kubelet_client.certificate}",
            f"--kubelet-client-key={self.kubelet_client.key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={self._accounts.certificate}",
            f"--service-account-signing-key-file={self._accounts.key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--endpoint-reconciler-type=none",  # a cluster of one on loopback has no endpoints to keep
            "--etcd-compaction-interval=0",  # only a test says when versions expire
            f"--watch-cache={str(self.options.watch_cache).lower()}",
            *([] if self.options.controllers else ["--disable-admission-plugins=ServiceAccount"]),
            *self.options.flags,
        ]

    def _controller_flags(self) -> list[str]:
        (port,) = free_ports(1)
        return [
            f"--kubeconfig={self.kubeconfig(by_certificate=True)}",
            f"--service-account-private-key-file={self._accounts.key}",
            f"--root-ca-file={self.authority.pair.certificate}",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / 'controllers'}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def _scheduler_flags(self) -> list[str]:
        (port,) = free_ports(1)
        return [
            f"--kubeconfig={self.kubeconfig(by_certificate=True)}",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / 'scheduler'}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--kube-api-qps=5000",
            "--kube-api-burst=5000",
        ]

    def _grant_reader(self) -> None:
        rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}]
        role = {"metadata": {"name": READER}, "rules": rules}
        binding: dict[str, Any] = {
            "metadata": {"name": READER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": READER}],
        }
        with self.client() as client:
            for kind, body in (("clusterroles", role), ("clusterrolebindings", binding)):
                client.post(f"/apis/rbac.authorization.k8s.io/v1/{kind}", json=body).raise_for_status()

    def _wait_for_default_account(self) -> None:
        """Wait until pods can be made in the default namespace: they need its service account."""
        with self.client() as client:
            path = "/api/v1/namespaces/default/serviceaccounts/default"
            self._wait_until(lambda: _answers(client, path), "the controllers have begun")

    # Processes

    def _start(self, name: str, *flags: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*self._programs[name], *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def _end(self, name: str) -> None:
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_TIMEOUT_S)

    def _wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + READY_TIMEOUT_S
        while not is_so():
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with {process.returncode}: {self.log(name)[-2000:]}")
            if time.monotonic() > until_s:
                raise TimeoutError(f"after {READY_TIMEOUT_S} s it is still not so that {what}")
            time.sleep(0.05)


@contextlib.contextmanager
def cluster(options: Options = WHOLE) -> Generator[Cluster]:
    """Run one cluster."""
    folder = Path(tempfile.mkdtemp(prefix="yunhe-kubernetes-"))
    made = Cluster(folder, options)
    try:
        made.start()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def clusters(count: int, options: Options = WHOLE) -> Generator[list[Cluster]]:
    """Run several clusters, started at the same time."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(count) as pool:
        starting = [
            pool.submit(contextlib.ExitStack.enter_context, stack, cluster(options)) for _ in range(count)
        ]
        yield [one.result() for one in starting]


def kubeconfig(server: str, authority: Path, credentials: Pair | str) -> dict[str, Any]:
    """Return the content of a kubeconfig file with one cluster, one user and one context."""
    user = (
        {"token": credentials}
        if isinstance(credentials, str)
        else {"client-certificate": str(credentials.certificate), "client-key": str(credentials.key)}
    )
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "test", "cluster": {"server": server, "certificate-authority": str(authority)}}
        ],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }


def free_ports(count: int) -> list[int]:
    """Return ports that nobody holds now."""
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(socket.socket()) for _ in range(count)]
        for line in lines:
            line.bind(("127.0.0.1", 0))
        return [line.getsockname()[1] for line in lines]


def _answers(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).status_code == 200
    except httpx.TransportError:
        return False


def _is_ours(found: dict[str, list[str]]) -> bool:
    return len(found["etcd"]) == 2


def _resident_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) >> 10
    return 0
