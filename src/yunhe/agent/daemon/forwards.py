"""Connections to ports inside an allocation: bytes both ways, each end closed when its own side has said all."""

from __future__ import annotations

import array
import asyncio
import errno
import os
import socket
from typing import Any

from yunhe.agent.daemon.tasks import TaskSet
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.frames import CHUNK_BYTES, INITIAL_CREDIT
from yunhe.agent.protocol.handles import read_handle, wait_readable, write_handle
from yunhe.agent.protocol.refusals import CONFLICT, RESTARTING, Refusal
from yunhe.agent.runs.node import AgentNode
from yunhe.agent.runtimes.connections import CONNECT_WITHIN_S

_ANSWER_WITHIN_S = 2 * CONNECT_WITHIN_S + 2.0


async def connect_inside(node: AgentNode, call: Call) -> None:
    """Join the caller to the port of *call*; room for input is granted once the connection is there.

    An empty part says that the program inside has said all; the answer, that both sides have.
    """
    allocation = node.register.live(call.body["allocation_id"])
    claim = allocation.run.record("claim")
    if claim is None:
        raise Refusal(CONFLICT, f"{allocation.id} has no claim.")
    order = {
        "allocation_id": allocation.id,
        "port": call.body["port"],
        "uid": allocation.uid,
        "environment": {},
        "runs": node.runs,
        "runtime": {"name": node.runtimes.of(claim).name, **claim.get("confinement", {})},
        "chosen": [],
    }
    handle = await _connect(node, order)
    tasks = TaskSet()
    try:
        fed = tasks.start(_feed(call, handle))
        fed.add_done_callback(lambda task: task.cancelled() or task.exception())  # told below, or of no use
        await _pass_on(call, handle)
        await fed
    finally:
        await tasks.dismiss()
        os.close(handle)
    await call.answer({})


async def _feed(call: Call, handle: int) -> None:
    await call.grant(INITIAL_CREDIT)
    while True:
        piece = await call.receive_patiently()
        if not piece:
            _say_no_more(handle)
            return
        try:
            await write_handle(handle, piece)
        except OSError as fault:
            raise _cut(fault) from fault
        await call.grant(1)


def _say_no_more(handle: int) -> None:
    with socket.socket(fileno=os.dup(handle)) as ours:
        try:
            ours.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it is closed already


async def _pass_on(call: Call, handle: int) -> None:
    while True:
        try:
            piece = await read_handle(handle, CHUNK_BYTES)
        except OSError as fault:
            raise _cut(fault) from fault
        await call.part({}, piece)
        if not piece:
            return


def _cut(fault: OSError) -> Refusal:
    return Refusal(CONFLICT, f"The program in the job cut the connection: {fault.strerror or fault}.")


async def _connect(node: AgentNode, order: dict[str, Any]) -> int:
    """Return the handle of a connection made inside, or refuse with why there is none."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            node.spawner.spawn("connect", order, [theirs.fileno()])
        await asyncio.wait_for(wait_readable(ours.fileno()), _ANSWER_WITHIN_S)
        rights = array.array("i")
        data, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(rights.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            rights.frombytes(content[: rights.itemsize])
    if rights:
        return rights[0]
    if not data:
        raise Refusal(RESTARTING, "The process that makes the connection was killed.", remedy="Try again.")
    if data[0] == errno.ECONNREFUSED:
        raise Refusal(
            CONFLICT,
            f"Nothing listens on port {order['port']} in the job.",
            remedy="Its program may not be ready, or listen on another port: see its log.",
        )
    if data[0] == errno.ESRCH:
        raise Refusal(CONFLICT, f"{order['allocation_id']} is not running its steps yet, or has ended.")
    raise Refusal(CONFLICT, f"Port {order['port']} in the job: {os.strerror(data[0])}.")
