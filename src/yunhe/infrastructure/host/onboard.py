"""The first contact with a host, one named check after the other; the node is active only after the last."""

import re
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from yunhe.infrastructure.contract.kind import Check
from yunhe.infrastructure.contract.model import Description, Inventory
from yunhe.infrastructure.host.bridge import NOT_STARTED, Opened, open_bridge
from yunhe.infrastructure.host.package import agent_file
from yunhe.infrastructure.host.target import DeclaredNode, HostTarget, LocalHost
from yunhe.kernel.errors import YunheError
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import show_cpu, show_memory

ANSWER_WITHIN_S = 30.0


class _Trouble(NamedTuple):
    """What ssh or the far shell says when a check fails."""

    check: str
    pattern: str
    remedy: str


_BEFORE_THE_AGENT = ("reachable", "key accepted", "python found")
_TROUBLES = (
    _Trouble(
        "key accepted",
        r"Host key verification failed|host key for .* has changed|No .* host key is known",
        "Connect once with ssh by hand and accept the host's key.",
    ),
    _Trouble(
        "key accepted",
        r"Permission denied \(|Too many authentication failures|no such identity",
        "Add your public key to the account's authorized_keys (ssh-copy-id), or name a key with --identity.",
    ),
    _Trouble(
        "reachable",
        r"^ssh: |^Connection (closed|reset|timed out)|^kex_exchange|banner exchange|did not answer within",
        "Check the name, the port and the network: ssh to it by hand should work without a password.",
    ),
    _Trouble(
        "agent started",
        r"may not be entered by others|does not start|the root .* cannot be used|Permission denied: '",
        "Choose a root that the account may write to with --option root=DIRECTORY.",
    ),
    _Trouble(
        "python found",
        r"not found|No such file|: Permission denied$|is too old for the agent",
        "Install Python 3.8 or newer there, or name one with --option {python}=/path/to/python3.",
    ),
)
_LOG_IN = "Log in with ssh by hand and see what the account's shell says."


async def onboard(target: HostTarget) -> AsyncIterator[Check]:
    """Try everything a host needs to serve, in order, and yield each result; stop at the first that fails."""
    try:
        opened = await open_bridge(target)
    except YunheError as error:
        for check in checks_before(error.problem, local=isinstance(target, LocalHost)):
            yield check
        return
    try:
        async for check in _checks_after(opened, target):
            yield check
    except YunheError as error:
        yield Check(step="agent answers", ok=False, detail=error.problem, remedy=error.remedy)
    finally:
        await opened.link.close()


async def _checks_after(opened: Opened, target: HostTarget) -> AsyncIterator[Check]:
    if not isinstance(target, LocalHost):
        yield Check(step="reachable", ok=True)
        yield Check(step="key accepted", ok=True)
    yield Check(step="python found", ok=True, detail=opened.hello["python"])
    size = f"{len(agent_file().data) / 1000:.0f} kB" if opened.sent_bytes else "already there"
    yield Check(step="agent sent", ok=True, detail=size)
    answer = await opened.link.request("describe", {}, timeout_s=ANSWER_WITHIN_S)
    description = msgspec.convert(answer, Description)
    yield Check(step="agent started", ok=True, detail=f"version {description.version}")
    yield Check(step="limits", ok=True, detail=f"{description.limits}, {description.isolation}")
    answer = await opened.link.request("inventory", {}, timeout_s=ANSWER_WITHIN_S)
    yield check_capacity(msgspec.convert(answer, Inventory).nodes[0].total, target.declared)


def check_capacity(total: Resources, declared: DeclaredNode) -> Check:
    """Compare with what the operator wants to offer: an agent that was there before offers what it was told then."""
    wanted = msgspec.structs.replace(
        total,
        cpu_millis=total.cpu_millis if declared.cpu_millis is None else declared.cpu_millis,
        memory_mib=total.memory_mib if declared.memory_mib is None else declared.memory_mib,
    )
    if wanted == total:
        return Check(step="capacity", ok=True, detail=_capacity(total))
    return Check(
        step="capacity",
        ok=False,
        detail=f"The agent there was started before, and offers {_capacity(total)}, not {_capacity(wanted)}.",
        remedy="Give this pool an agent of its own with --option root=DIRECTORY; or end that one on the host with"
        " kill $(cat ROOT/agent.lock), which ends no task, and try again.",
    )


def _capacity(total: Resources) -> str:
    cores = "core" if total.cpu_millis == 1000 else "cores"
    return f"{show_cpu(total.cpu_millis)} {cores}, {show_memory(total.memory_mib)}"


def checks_before(problem: str, *, local: bool, python: str = "python") -> list[Check]:
    """Return the checks that must have passed, and the one that *problem* tells of; *python*: that option's name."""
    said = problem.removeprefix(NOT_STARTED)
    failed, remedy = (
        ("agent started", "See agent.log in the agent's root.") if local else ("python found", _LOG_IN)
    )
    for trouble in _TROUBLES:
        if re.search(trouble.pattern, said, re.MULTILINE | re.IGNORECASE):
            failed, remedy = trouble.check, trouble.remedy.format(python=python)
            break
    order = () if local else _BEFORE_THE_AGENT
    passed = order[: order.index(failed)] if failed in order else order
    return [
        *(Check(step=name, ok=True) for name in passed),
        Check(step=failed, ok=False, detail=said, remedy=remedy),
    ]
