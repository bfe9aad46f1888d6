"""Commands beside an allocation: bytes to and from them while they run."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import termios

from yunhe.agent.calls import Call
from yunhe.agent.crew import Crew
from yunhe.agent.environment import environment_of
from yunhe.agent.frames import CHUNK_BYTES, INITIAL_CREDIT
from yunhe.agent.handles import read_all, read_handle, write_handle
from yunhe.agent.node import Node
from yunhe.agent.refusals import CONFLICT, Refusal


async def run_command(node: Node, call: Call) -> None:
    """Run the command of *call*; it ends when the caller leaves."""
    allocation = node.register.live(call.body["allocation_id"])
    claim = allocation.run.record("claim")
    if claim is None:
        raise Refusal(CONFLICT, f"{allocation.id} has no claim.")
    tty = call.body.get("tty", False)
    environment = environment_of(allocation.run, claim, {})
    if tty:
        environment.setdefault("TERM", "xterm-256color")
    order = {
        "allocation_id": allocation.id,
        "argv": call.body["argv"],
        "tty": tty,
        "uid": allocation.uid,
        "work": allocation.run.work,
        "keeper": node.keeper.as_body(),
        "environment": environment,
        "container": allocation.run.record("container"),
        "chosen": sorted(claim.get("envs", {})),
    }
    ours, theirs = _open_terminal(call, allocation.uid) if tty else _open_pipes()
    status_reader, status_writer = os.pipe()
    held = {status_reader, *ours}
    crew = Crew()
    try:
        try:
            node.spawner.spawn("command", order, [status_writer, *theirs])
        finally:
            for handle in {status_writer, *theirs}:
                os.close(handle)
        crew.start(_feed(call, ours[0], held, tty=tty))
        while True:
            piece = await read_handle(ours[1], CHUNK_BYTES)
            if not piece:
                break
            await call.part({}, piece)
        answer = await read_all(status_reader)
    finally:
        await crew.dismiss()
        for handle in held:
            os.close(handle)
    await call.answer(json.loads(answer) if answer else {"exit_code": 255})


def _open_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    input_reader, input_writer = os.pipe()
    output_reader, output_writer = os.pipe()
    return (input_writer, output_reader), (input_reader, output_writer)


def _open_terminal(call: Call, uid: int) -> tuple[tuple[int, int], tuple[int, int]]:
    master, slave = pty.openpty()
    if os.geteuid() == 0:
        os.fchown(slave, uid, -1)

    def set_size(rows: int, columns: int) -> None:
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    set_size(call.body.get("rows", 24), call.body.get("columns", 80))
    call.on_window = set_size
    return (master, master), (slave, slave)


async def _feed(call: Call, handle: int, held: set[int], *, tty: bool) -> None:
    """Pass on what the caller types until they end it; on a terminal the end is a character."""
    await call.grant(INITIAL_CREDIT)
    while True:
        piece = await call.receive_patiently()
        try:
            if piece:
                await write_handle(handle, piece)
            elif tty:
                await write_handle(handle, b"\x04")
        except BrokenPipeError:
            return
        if not piece:
            if not tty:
                held.discard(handle)
                os.close(handle)
            return
        await call.grant(1)
