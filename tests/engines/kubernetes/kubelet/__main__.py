"""Run test kubelets: ``python -m engines.kubernetes.kubelet ORDER.json``, one for each node.

A test kubelet does to pods what a kubelet and a container runtime do, with processes of this machine: own file
system layer, PIDs and host name, limits by control groups, volumes, environment, restarts, deadlines, grace,
logs, exec, usage and in-place resize, all through the real API server. What is proven with it is proven at the
level of the API. Only a real kubelet could prove what depends on:

* images: pulling, entry points and users of images; the host's own files are the image, and a command is needed;
* networks: pods share the host's, all have the address of their node, so ports collide and services lead nowhere;
* probes, lifecycle hooks, sidecars (init containers that go on), ephemeral containers, attach and port forwarding:
  none of them is done, and a container is ready once it runs;
* volumes other than emptyDir, hostPath, configMap, secret, downwardAPI and projected; ConfigMaps and Secrets are
  read once at the start and not followed;
* events and termination messages: none are written;
* isolation: capabilities, seccomp, read-only roots, ephemeral storage limits; a CPU request weighs nothing;
* devices: an extended resource is a number that the scheduler counts, and no device is handed over;
* node pressure, eviction and preemption by the kubelet; allocatable is all of the capacity;
* the ``RestartContainer`` policy of a resize (it is applied without a restart), and swap;
* the node authorizer: this kubelet is an administrator;
* a restart of the kubelet with its pods still running: here that is a restart of the node, and what ran is gone;
* times: it starts failed containers again after half a second, where a kubelet waits ten and more.
"""

import json
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import anyio

from engines.kubernetes.kubelet.access import Access
from engines.kubernetes.kubelet.node import Node, NodeSpec
from engines.kubernetes.kubelet.pods import Home
from engines.kubernetes.kubelet.server import Server
from yunhe.agent.limits.limits import find_backend


async def main(order: dict[str, Any]) -> None:
    """Serve every node of *order* until told to end."""
    access = Access(Path(order["kubeconfig"]))
    folder = Path(order["folder"])
    keeper = find_backend(str(folder))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=order["authority"])
    context.load_cert_chain(order["certificate"], order["key"])
    context.verify_mode = ssl.CERT_REQUIRED
    async with anyio.create_task_group() as tasks:
        for spec in order["nodes"]:
            node = Node(access, NodeSpec(**spec), Home(order["address"], folder / spec["name"], keeper))
            port = await tasks.start(Server(node, context).serve, order["address"])
            await node.register(port)
            tasks.start_soon(node.heartbeat)
            tasks.start_soon(node.follow_pods)
        (folder / "ready").touch()
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        tasks.cancel_scope.cancel()
    await access.close()
    keeper.remove()


if __name__ == "__main__":
    anyio.run(main, json.loads(Path(sys.argv[1]).read_text()))
