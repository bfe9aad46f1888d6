"""Run test kubelets: ``python -m engines.kubernetes.kubelet ORDER.json``, with one node each."""

import json
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import anyio

from engines.kubernetes.kubelet.access import Access
from engines.kubernetes.kubelet.node import Node, NodeSpec
from engines.kubernetes.kubelet.server import Server
from yunhe.agent.limits import find_keeper


async def main(order: dict[str, Any]) -> None:
    """Serve every node of *order* until told to end."""
    access = Access(Path(order["kubeconfig"]))
    folder = Path(order["folder"])
    keeper = find_keeper(str(folder))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=order["authority"])
    context.load_cert_chain(order["certificate"], order["key"])
    context.verify_mode = ssl.CERT_REQUIRED
    async with anyio.create_task_group() as tasks:
        for spec in order["nodes"]:
            node = Node(access, NodeSpec(**spec), folder / spec["name"], keeper)
            port = await tasks.start(Server(node, context).serve)
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
