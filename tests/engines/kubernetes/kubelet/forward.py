"""A connection to a port of a pod, over a websocket as kubelets serve it; pods here share the machine's network."""

import anyio
from anyio.abc import SocketStream

from engines.kubernetes.kubelet.exec import WebsocketChannels

DATA, ERROR = 0, 1


async def forward(port: int, channels: WebsocketChannels) -> None:
    """Carry bytes both ways until one side hangs up."""
    for channel in (DATA, ERROR):
        await channels.send(channel, port.to_bytes(2, "little"))
    try:
        line = await anyio.connect_tcp("127.0.0.1", port)
    except OSError:
        text = f"error forwarding port {port}: dial tcp4 127.0.0.1:{port}: connect: connection refused"
        await channels.send(ERROR, text.encode())
        await channels.hang_up()
        return
    async with line, anyio.create_task_group() as group:
        group.start_soon(_bring, line, channels)
        async for said in channels.said():
            if said.channel == DATA:
                await line.send(said.data)
        group.cancel_scope.cancel()


async def _bring(line: SocketStream, channels: WebsocketChannels) -> None:
    async for data in line:
        await channels.send(DATA, data)
    await channels.hang_up()
