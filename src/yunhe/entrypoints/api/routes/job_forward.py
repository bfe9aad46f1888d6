"""A connection to a port inside a running job, over a WebSocket.

The server begins with ``{"connected": true}``. Then binary messages are bytes both ways, and ``{"eof": true}`` from
either side says that it has said all; when both have, the server closes. It may end with ``{"problem": …}`` at any time.
"""

import anyio
import msgspec
from litestar import Router, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.params import FromPath

from yunhe.control.pools.model import ForwardSession
from yunhe.entrypoints.api.caller import Caller, authenticate
from yunhe.entrypoints.api.routes.job_exec import Socket, alone, refuse
from yunhe.kernel.errors import ConflictError, FieldProblem, InvalidInputError
from yunhe.kernel.validation import read_json
from yunhe.trading.accounts.model import Action

IDLE_S = 3600.0
"""How long neither side may say anything; a notebook's page says something every half minute."""
LAST_PORT = 65_535


class ForwardControl(msgspec.Struct, frozen=True):
    """What a text message may say."""

    eof: bool = False


@websocket("/jobs/{job_id:str}/forward/{port:int}")
async def connect_to_port(job_id: FromPath[str], port: FromPath[int], socket: Socket) -> None:
    """Connect to a port inside a running job."""
    await socket.accept()
    try:
        caller = Caller(socket.app.state.platform, await authenticate(socket), socket.app.state.rates)
        job = await caller.job(job_id, Action.RUN)
        async with caller.platform.orchestration.forward(job.id, _checked(port)) as session:
            await socket.send_text('{"connected":true}')
            await Relay(socket, session).run()
        await socket.close()
    except Exception as error:  # noqa: BLE001 - told to the caller, and logged when nobody expected it
        await refuse(socket, alone(error))


def _checked(port: int) -> int:
    if not 0 < port <= LAST_PORT:
        problem = FieldProblem("port", f"must be 1 to {LAST_PORT}", str(port))
        raise InvalidInputError("There is no such port.", remedy="Name another.", fields=(problem,))
    return port


class Relay:
    """Carries bytes both ways until both sides have said all, one has left, or neither says anything for too long."""

    def __init__(self, socket: Socket, session: ForwardSession) -> None:
        self._socket = socket
        self._session = session
        self._moved_at = anyio.current_time()
        self._heard_all = anyio.Event()

    async def run(self) -> None:
        """Return when both sides have said all."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._carry_in)
            group.start_soon(self._watch)
            while data := await self._session.receive():
                await self._socket.send_bytes(data)
                self._moved_at = anyio.current_time()
            await self._socket.send_text('{"eof":true}')
            await self._heard_all.wait()
            group.cancel_scope.cancel()

    async def _carry_in(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(detail="the caller left")
            if data := message.get("bytes"):
                await self._session.send(data)
                self._moved_at = anyio.current_time()
            elif read_json((message.get("text") or "{}").encode(errors="replace"), ForwardControl).eof:
                await self._session.send(b"")
                self._heard_all.set()

    async def _watch(self) -> None:
        while (rest_s := self._moved_at + IDLE_S - anyio.current_time()) > 0:  # noqa: ASYNC110 - no event for each piece
            await anyio.sleep(rest_s)
        raise ConflictError(f"Nothing was sent either way for {IDLE_S / 3600:g} h.", remedy="Connect again.")


router = Router("/", route_handlers=[connect_to_port])
