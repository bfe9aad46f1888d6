"""The host's container engine, podman or docker: the commands it is given and what it answers.

A container is made with one idle process as the project's user and the allocation's directories in it. The wrapper
enters it with each step (see ``runtimes.namespaces``); when that idle process is killed, the engine removes the container.
"""

from __future__ import annotations

import os
import resource
import subprocess
from typing import Any, NamedTuple

from yunhe.agent.limits.limits import LimitGroup
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.processes import Identity, identify
from yunhe.agent.runtimes.container.environment import MARK, first_environment
from yunhe.agent.runtimes.network import TaskNetwork

ENGINES = ("podman", "docker")
LABEL = "yunhe.agent"
ANSWER_WITHIN_S = 20.0
_IDLE = "while :; do sleep 2147483647; done"
_ABOUT = '{{.State.Pid}} {{with .GraphDriver}}{{with .Data}}{{index . "UpperDir"}}{{end}}{{end}}'
_FIRST_NAME = "yunhe-"


class EngineAnswer(NamedTuple):
    """How a command of the engine ended and what it said."""

    code: int
    text: str

    @property
    def last_line(self) -> str:
        """Return the last thing it said, or how it ended."""
        return last_line(self.text) or f"it ended with {self.code}"


def ask(command: list[str]) -> EngineAnswer:
    """Run a command of the engine to its end, or for as long as it may take."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ANSWER_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return EngineAnswer(124, f"it did not answer within {ANSWER_WITHIN_S:g} s")
    except OSError as fault:
        return EngineAnswer(126, str(fault))
    return EngineAnswer(done.returncode, done.stdout.decode(errors="replace"))


def allocations(program: str, agent: str) -> list[str]:
    """Return the allocations that have a container of this agent."""
    listing = ["ps", "--all", "--filter", f"label={LABEL}={agent}", "--format", "{{.Names}}"]
    said = ask([program, *listing])
    names = said.text.split() if said.code == 0 else []
    return [name[len(_FIRST_NAME) :] for name in names if name.startswith(_FIRST_NAME)]


def last_line(text: str) -> str:
    """Return the last thing an engine said that is not empty, at most 300 characters of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def container_name(allocation_id: str) -> str:
    """Return what the container of an allocation is called."""
    return f"{_FIRST_NAME}{allocation_id}"


def start(order: dict[str, Any], run: Run, group: LimitGroup, network: TaskNetwork) -> list[str]:
    """Return the command that makes the container of *order*, fetching the image where it is not there yet."""
    name, uid = container_name(run.id), order["uid"]
    mounts = [f"{path}:{path}" for path in (run.work, run.at("tmp"))]
    mounts += [f"{run.at('tmp')}:/tmp", f"{run.at('steps')}:{run.at('steps')}:ro"]
    # Programs that look for their limits find those of the allocation's own group.
    mounts += [f"{path}:{shown}:ro" for path, shown in group.shown_as()]
    if network.resolver:
        mounts.append(f"{run.at('resolv.conf')}:/etc/resolv.conf:ro")
    return [
        order["runtime"]["program"],
        "run",
        "--detach",
        "--rm",
        f"--name={name}",
        f"--label={LABEL}={order['runtime']['agent']}",
        f"--env={MARK}={name}",
        f"--user={uid}:{uid}",
        f"--network={'none' if network.apart else 'host'}",
        "--stop-signal=SIGKILL",
        "--cgroupns=host",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        "--security-opt=label=disable",
        "--log-driver=none",
        "--no-healthcheck",
        "--workdir=/",
        f"--shm-size={order['runtime']['shared_memory_mib']}m",
        *(f"--ulimit={word}={most}:{most}" for word, most in _ulimits()),
        *(f"--volume={mount}" for mount in mounts),
        "--entrypoint=/bin/sh",
        order["runtime"]["image"],
        "-c",
        _IDLE,
    ]


def _ulimits() -> list[tuple[str, int]]:
    """Return limits for the idle process that an engine may set even where it may not raise any."""
    wanted = (("nofile", resource.RLIMIT_NOFILE, 1024), ("nproc", resource.RLIMIT_NPROC, 4096))
    limits: list[tuple[str, int]] = []
    for word, number, most in wanted:
        hard = resource.getrlimit(number)[1]
        limits.append((word, most if hard == resource.RLIM_INFINITY else min(most, hard)))
    return limits


def question(program: str, allocation_id: str) -> list[str]:
    """Return the command that asks for a container's first process and where its own layer of files lies."""
    return [program, "inspect", "--type=container", f"--format={_ABOUT}", container_name(allocation_id)]


def removal(program: str, allocation_id: str) -> list[str]:
    """Return the command that removes a container, whatever state it is in."""
    return [program, "rm", "--force", container_name(allocation_id)]


def found(answer: str, allocation_id: str) -> tuple[Identity, str]:
    """Return who the first process is, by the answer to ``question``, and the directory of the container's layer."""
    pid, _, layer = last_line(answer).partition(" ")
    if not pid.isdigit() or int(pid) <= 0:
        raise OSError(f"its container ended at once ({last_line(answer)}): the image needs /bin/sh and sleep")
    identity = identify(int(pid))
    if first_environment(identity.pid).get(MARK) != container_name(allocation_id):
        raise OSError("the container engine serves another machine, where this agent cannot enter")
    return identity, layer if os.path.isabs(layer) else ""
