"""Commands beside an allocation: bytes to and from them while they run."""

from __future__ import annotations

import json
import os

from yunhe.agent.daemon.tasks import TaskSet
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.handles import read_all
from yunhe.agent.protocol.refusals import CONFLICT, Refusal
from yunhe.agent.protocol.streams import feed, open_pipes, open_terminal, pass_on
from yunhe.agent.pythons.task import RECORD as PYTHON_RECORD
from yunhe.agent.runs.environment import environment_of
from yunhe.agent.runs.node import AgentNode


async def run_command(node: AgentNode, call: Call) -> None:
    """Run the command of *call*; it ends when the caller leaves."""
    allocation = node.register.live(call.body["allocation_id"])
    claim = allocation.run.record("claim")
    if claim is None:
        raise Refusal(CONFLICT, f"{allocation.id} has no claim.")
    tty = call.body.get("tty", False)
    environment = {
        **environment_of(allocation.run, claim, {}),
        **(allocation.run.record(PYTHON_RECORD) or {}),
    }
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
        "runs": node.runs,
        "runtime": {"name": node.runtimes.of(claim).name, **claim.get("confinement", {})},
        "chosen": sorted(claim.get("envs", {})),
    }
    ours, theirs = open_terminal(call) if tty else open_pipes()
    if tty and os.geteuid() == 0:
        os.fchown(theirs[0], allocation.uid, -1)
    status_reader, status_writer = os.pipe()
    held = {status_reader, *ours}
    tasks = TaskSet()
    try:
        try:
            node.spawner.spawn("command", order, [status_writer, *theirs])
        finally:
            for handle in {status_writer, *theirs}:
                os.close(handle)
        tasks.start(feed(call, ours[0], held, tty=tty))
        await pass_on(call, ours[1])
        answer = await read_all(status_reader)
    finally:
        await tasks.dismiss()
        for handle in held:
            os.close(handle)
    await call.answer(json.loads(answer) if answer else {"exit_code": 255})
