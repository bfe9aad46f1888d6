"""Nodes for a test cluster: a process with test kubelets, started and ended by its PID."""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from engines.kubernetes.cluster import Cluster
from engines.kubernetes.kubelet.node import NodeSpec
from support.repository import REPOSITORY
from yunhe.agent.limits.limits import find_backend

READY_TIMEOUT_S = 60.0
END_TIMEOUT_S = 40.0


def node(name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **others: str) -> NodeSpec:
    """Return a node; further words are extended resources or labels, by whether their value is a number.

    Names of resources and labels have dots and slashes: ``node("a", **{"nvidia.com/gpu": "2", "zone": "north"})``.
    """
    extended = {key: value for key, value in others.items() if value.isdigit()}
    labels = {key: value for key, value in others.items() if not value.isdigit()}
    return NodeSpec(name, {"cpu": cpu, "memory": memory, "pods": pods} | extended, labels)


class Nodes:
    """One process with the test kubelets of some nodes."""

    def __init__(self, cluster: Cluster, specs: Sequence[NodeSpec]) -> None:
        self._cluster, self._specs = cluster, specs
        self._folder = Path(tempfile.mkdtemp(prefix="yunhe-kubelet-"))
        self._log = cluster.folder / f"{self._folder.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"198.18.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"
        _loopback("add", self.address)

    def start(self) -> None:
        """Start the process and wait until every node is ready; after a kill, what ran before is gone."""
        self._sweep()
        (self._folder / "ready").unlink(missing_ok=True)
        pair = self._cluster.authority.server("kubelet", self.address)
        order = {
            "kubeconfig": str(self._cluster.kubeconfig(by_certificate=True)),
            "authority": str(self._cluster.authority.pair.certificate),
            "certificate": str(pair.certificate),
            "key": str(pair.key),
            "folder": str(self._folder),
            "address": self.address,
            "nodes": [spec._asdict() for spec in self._specs],
        }
        (self._folder / "order.json").write_text(json.dumps(order))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "engines.kubernetes.kubelet", str(self._folder / "order.json")],
                env=os.environ | {"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY / 'tests'}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until_s = time.monotonic() + READY_TIMEOUT_S
        while not (self._folder / "ready").exists():
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"the test kubelet did not start: {self.log()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End the kubelets as a crash would; what they ran goes on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(END_TIMEOUT_S)

    def close(self) -> None:
        """End the kubelets and all they ran, and remove what they wrote."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._sweep()
        _loopback("delete", self.address)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _sweep(self) -> None:
        """End every process that a pod left, and remove what pods wrote."""
        keeper = find_backend(str(self._folder))
        for name in keeper.leftovers():
            keeper.group(name).kill()
            keeper.group(name).remove()
        keeper.remove()
        for spec in self._specs:
            shutil.rmtree(self._folder / spec.name, ignore_errors=True)

    def log(self) -> str:
        """Return what the kubelets have said: nothing, if all is well."""
        return self._log.read_text(errors="replace")

    def pid(self) -> int:
        """Return the PID of the process."""
        assert self._process is not None
        return self._process.pid


def _loopback(verb: str, address: str) -> None:
    """Give the loopback device an address for benchmarks (RFC 2544), or take it away.

    The API server refuses to proxy to 127.0.0.1, so that it cannot be made to call itself.
    """
    subprocess.run(["ip", "address", verb, f"{address}/32", "dev", "lo"], check=True, timeout=10)


@contextlib.contextmanager
def run_nodes(cluster: Cluster, *specs: NodeSpec) -> Generator[Nodes]:
    """Run kubelets for *specs*; without root there can be none, and the test is skipped."""
    if os.geteuid() != 0:
        pytest.skip("the test kubelet needs root, for control groups and mounts")
    nodes = Nodes(cluster, specs)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()
