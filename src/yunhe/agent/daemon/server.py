"""Answers requests: every connection has any number of calls under way, each in its own task."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import sys
import time
import traceback
from typing import Any, Awaitable, Callable, Protocol

from yunhe.agent import AGENT_VERSION, OLDEST_PROTOCOL, PROTOCOL
from yunhe.agent.daemon.forwards import connect_inside
from yunhe.agent.daemon.sessions import run_command
from yunhe.agent.daemon.tasks import TaskSet
from yunhe.agent.daemon.upgrade import receive_agent
from yunhe.agent.files.node_files import NodeFiles
from yunhe.agent.limits.guards import limit_guards
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.frames import CHUNK_BYTES, Decoder, Frame, encode
from yunhe.agent.protocol.refusals import BUSY, INTERNAL, INVALID, RESTARTING, Refusal, refusal_of
from yunhe.agent.protocol.shapes import SHAPES, Check, check_body
from yunhe.agent.runs.logs import end_of_log, read_log, read_marks
from yunhe.agent.runs.node import POWERS, AgentNode
from yunhe.agent.runs.processes import boot_id
from yunhe.agent.runs.register import LIVE, PREPARING
from yunhe.agent.runs.watch import RunWatch
from yunhe.agent.runtimes.wrapper import clock_ms

MAX_CALLS = 384
"""Requests one connection may have under way."""
FOLLOW_EVERY_S = 0.04
OBSERVED_PER_PART = 200
MINUTES_PER_PART = 200

Handler = Callable[[Call], Awaitable[None]]


class AgentServer:
    """The daemon's face."""

    def __init__(
        self, node: AgentNode, watch: RunWatch, digest: str, probe_runtimes: Callable[[], Awaitable[None]]
    ) -> None:
        self._node = node
        self._probe_runtimes = probe_runtimes
        self._watch = watch
        self._digest = digest
        self._change = asyncio.Event()
        self._connections: set[AgentConnection] = set()
        self.replacement = ""
        """The file of a newer agent, once one has come and the daemon should become it."""
        self.replace = asyncio.Event()
        node.on_change = self._changed
        files = NodeFiles(node)
        commands = ("stop", "release", "resize", "pin", "pause", "resume")
        self._handlers: dict[str, Handler] = {
            "hello": self._hello,
            "describe": self._describe,
            "account": self._account,
            "inventory": self._inventory,
            "observe": self._observe,
            "logs": self._logs,
            "usage": self._usage,
            "put_archive": files.put,
            "get_archive": files.get,
            "exec": lambda call: run_command(node, call),
            "forward": lambda call: connect_inside(node, call),
            "launch": self._launch,
            "upgrade": self._upgrade,
            **{name: self._commander(getattr(node, name)) for name in commands},
        }

    @property
    def is_connected(self) -> bool:
        """Return whether a platform is connected."""
        return bool(self._connections)

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it is closed."""
        connection = AgentConnection(self, reader, writer)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def close(self) -> None:
        """Tell everybody who waits that they should ask again, and hang up."""
        for connection in list(self._connections):
            await connection.hang_up(Refusal(RESTARTING, "The agent is being replaced.", remedy="Ask again."))

    async def handle(self, call: Call) -> None:
        """Answer *call*, with a refusal if need be."""
        await answer(call, self._handlers)

    # Verbs

    @staticmethod
    def _commander(command: Callable[[dict[str, Any]], None]) -> Handler:
        async def handle(call: Call) -> None:
            command(call.body)
            await call.answer({})

        return handle

    async def _hello(self, call: Call) -> None:
        newest = min(PROTOCOL, call.body["protocol"])
        if newest < max(OLDEST_PROTOCOL, call.body["oldest_protocol"]):
            raise Refusal(
                INVALID,
                f"This agent speaks protocols {OLDEST_PROTOCOL} to {PROTOCOL}; "
                f"the platform {call.body['oldest_protocol']} to {call.body['protocol']}.",
                remedy="Upgrade whichever is older.",
                fields=[{"field": "protocol", "problem": "none in common"}],
            )
        await call.answer(
            {
                "protocol": newest,
                "agent_version": AGENT_VERSION,
                "digest": self._digest,
                "boot_id": boot_id(),
                "pid": os.getpid(),
                "python": sys.version.split()[0],
            }
        )

    async def _launch(self, call: Call) -> None:
        if not self._node.runtimes.of(call.body).probed:
            await self._probe_runtimes()
        self._node.launch(call.body)
        await call.answer({})

    async def _describe(self, call: Call) -> None:
        await self._probe_runtimes()
        missing = self._node.missing_powers()
        powers = [power for power in POWERS if power not in missing]
        guards = [*limit_guards(self._node.keeper), *self._node.runtimes.guards()]
        await call.answer(
            {
                "engine": "host",
                "version": f"{AGENT_VERSION} ({self._digest[:12]})",
                "powers": powers,
                "missing": missing,
                "isolation": "per-project" if self._node.users.per_project else "one-project",
                "limits": self._node.keeper.words,
                "network_metered": not self._node.runtimes.network.missing,
                "permits": self._node.runtimes.permits(),
                "guards": [guard.as_body() for guard in guards],
            }
        )

    async def _account(self, call: Call) -> None:
        await call.answer({"identity": getpass.getuser()})

    async def _inventory(self, call: Call) -> None:
        machine = self._node.machine
        unfit = self._node.fitness.refusal()
        node = {
            "id": machine.node_id,
            "total": machine.total(),
            "used": machine.used(),
            "ready": unfit is None,
            "reason": "" if unfit is None else unfit.problem,
            **machine.about(),
        }
        await call.answer({"taken_at": time.time(), "clock_ms": clock_ms(), "nodes": [node]})

    async def _observe(self, call: Call) -> None:
        until = time.monotonic() + call.body.get("wait_s", 0.0)
        changes, beyond = self._node.changes, call.body.get("beyond", -1)
        while changes.version == beyond and time.monotonic() < until:
            try:
                await asyncio.wait_for(self._change.wait(), until - time.monotonic())
            except asyncio.TimeoutError:
                break
        version, notices, known = changes.version, self._node.notices, self._node.register.allocations
        since = changes.after(beyond) if call.body.get("changes", False) else None
        names, gone = (list(known), []) if since is None else since
        observed = [self._watch.observed(known[name]) for name in names]
        for start in range(0, len(observed), OBSERVED_PER_PART):
            await call.part({"allocations": observed[start : start + OBSERVED_PER_PART]})
        told = {"since": -1 if since is None else beyond, "gone": gone}
        await call.answer({"version": version, "notices": notices, **told})

    async def _logs(self, call: Call) -> None:
        allocation = self._node.register.known(call.body["allocation_id"])
        offset = call.body.get("offset", 0)
        directory = allocation.run.log
        while True:
            # Ask whether it lives before reading: what it wrote last is then in the log.
            more = allocation.phase in (*LIVE, PREPARING) and call.body.get("follow", False)
            start, data = read_log(directory, offset, CHUNK_BYTES)
            if data:
                offset = start + len(data)
                await call.part(log_part(call, directory, start, offset), data)
            elif more:
                await asyncio.sleep(FOLLOW_EVERY_S)
            else:
                break
        await call.answer({"end": end_of_log(directory)})

    async def _usage(self, call: Call) -> None:
        minutes = self._node.spool.beyond(call.body.get("beyond", -1))
        told = [{key: value for key, value in one.items() if key != "until_ms"} for one in minutes]
        for start in range(0, len(told), MINUTES_PER_PART):
            await call.part({"minutes": told[start : start + MINUTES_PER_PART]})
        await call.answer({"dropped": self._node.spool.dropped})

    async def _upgrade(self, call: Call) -> None:
        self.replacement = await receive_agent(call, self._node.root)
        await call.answer({})
        self.replace.set()


async def answer(call: Call, handlers: dict[str, Handler], shapes: dict[str, Check] = SHAPES) -> None:
    """Have *call* answered by the handler of its verb, with a refusal if need be."""
    try:
        check_body(call.verb, call.body, shapes)
        await handlers[call.verb](call)
    except Refusal as refusal:
        await call.refuse(refusal)
    except asyncio.TimeoutError:
        await call.refuse(Refusal(INVALID, f"{call.verb}: nothing was heard for too long."))
    except ConnectionError:
        return  # the platform has hung up; there is nobody to tell
    except OSError as fault:
        await call.refuse(refusal_of(fault, call.verb))
    except Exception as fault:  # noqa: BLE001 - a fault in one call must not end the others
        # Only where it happened: the fault's words could repeat what was sent, and that may be secret.
        where = traceback.extract_tb(fault.__traceback__)[-1]
        with contextlib.suppress(OSError):  # a full disk has no room for it either
            sys.stderr.write(f"{call.verb}: {type(fault).__name__} at {where.filename}:{where.lineno}\n")
        await call.refuse(Refusal(INTERNAL, f"The agent failed at {call.verb}: {type(fault).__name__}."))


def log_part(call: Call, directory: str, start: int, end: int) -> dict[str, Any]:
    """Return what is said of a piece of output, with its marks for who asked for them."""
    marks = read_marks(directory, start, end) if call.body.get("marks") else []
    return {"offset": start, **({"marks": marks} if marks else {})}


class Answering(Protocol):
    """Whatever has an answer to every call."""

    async def handle(self, call: Call) -> None:
        """Answer *call*, with a refusal if need be."""
        ...


class AgentConnection:
    """One bridge."""

    def __init__(self, server: Answering, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._calls: dict[int, tuple[Call, asyncio.Task[None]]] = {}
        self._crew = TaskSet()
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Take frames until the other side hangs up or breaks the form."""
        decoder = Decoder()
        try:
            while True:
                data = await self._reader.read(CHUNK_BYTES)
                if not data:
                    break
                for frame in decoder.feed(data):
                    await self._take(frame)
        except Refusal as refusal:
            await self._say_goodbye(refusal)
        except ConnectionError:
            return  # hanging up is how a bridge ends
        finally:
            await self._crew.dismiss()
            self._writer.close()

    async def _take(self, frame: Frame) -> None:
        number = frame.header.get("id")
        if not isinstance(number, int) or isinstance(number, bool):
            raise Refusal(
                INVALID, "id must be a whole number.", fields=[{"field": "id", "problem": "is not one"}]
            )
        known = self._calls.get(number)
        if "verb" in frame.header:
            if known is not None:
                raise Refusal(INVALID, f"Request {number} is under way already.")
            self._begin(number, frame)
        elif known is not None and "cancel" in frame.header:
            known[1].cancel()
        elif known is not None:
            known[0].take(frame)

    def _begin(self, number: int, frame: Frame) -> None:
        call = Call(number, frame.header["verb"], frame.header.get("body", {}), self._send)
        if len(self._calls) >= MAX_CALLS:
            self._crew.start(
                call.refuse(Refusal(BUSY, f"{MAX_CALLS} requests are under way.", remedy="Ask again later."))
            )
            return
        self._calls[number] = (call, self._crew.start(self._run_call(call)))

    async def _run_call(self, call: Call) -> None:
        try:
            await self._server.handle(call)
        finally:
            self._calls.pop(call.number, None)

    async def _send(self, data: bytes) -> None:
        async with self._writing:
            self._writer.write(data)
            await self._writer.drain()

    async def hang_up(self, refusal: Refusal) -> None:
        """Refuse whatever is under way and close the connection."""
        for call, task in list(self._calls.values()):
            task.cancel()
            await self._try_send(encode({"id": call.number, "error": refusal.as_body()}))
        await self._say_goodbye(refusal)

    async def _say_goodbye(self, refusal: Refusal) -> None:
        await self._try_send(encode({"error": refusal.as_body()}))
        self._writer.close()

    async def _try_send(self, data: bytes) -> None:
        try:
            await asyncio.wait_for(self._send(data), 1.0)
        except (asyncio.TimeoutError, OSError):
            return
