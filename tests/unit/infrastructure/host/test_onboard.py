"""What ssh and a far shell say is told apart: the step that failed, and what to do about it."""

import pytest

from yunhe.infrastructure.host.bridge import NOT_STARTED
from yunhe.infrastructure.host.onboard import check_capacity, checks_before, onboard
from yunhe.infrastructure.host.target import DeclaredNode, LocalHost
from yunhe.kernel.resources import Resources

CASES = [
    ("ssh: Could not resolve hostname nowhere: Name or service not known", "reachable", "the name"),
    ("ssh: connect to host 10.0.3.7 port 22: Connection timed out", "reachable", "the port"),
    ("Authorized users only.\nConnection closed by 10.0.3.7 port 22", "reachable", "network"),
    ("kex_exchange_identification: read: Connection reset by peer", "reachable", "network"),
    ("The host did not answer within 40 s.", "reachable", "network"),
    ("Host key verification failed.", "key accepted", "accept the host's key"),
    ("ops@10.0.3.7: Permission denied (publickey).", "key accepted", "authorized_keys"),
    (
        "Warning: Identity file nope not accessible: No such file or directory.\nPermission denied (publickey).",
        "key accepted",
        "--identity",
    ),
    ("bash: line 1: exec: python3: not found", "python found", "--option python="),
    ("zsh:1: no such file or directory: /opt/python", "python found", "--option python="),
    ("sh: 1: exec: /opt/python: Permission denied", "python found", "--option python="),
    ("Python 3.6 on the host is too old for the agent.", "python found", "3.8"),
    ("This account is currently not available.", "python found", "Log in"),
    ("the root /srv/agent cannot be used: Permission denied", "agent started", "--option root="),
    ("The agent in /srv/agent does not start.\nNo such file", "agent started", "--option root="),
]


@pytest.mark.parametrize(("said", "step", "remedy"), CASES, ids=[said[:30] for said, _, _ in CASES])
def test_each_trouble_on_the_way_has_its_step_and_remedy(said: str, step: str, remedy: str) -> None:
    *passed, failed = checks_before(f"{NOT_STARTED}{said}", local=False)
    assert (failed.step, failed.ok, failed.detail) == (step, False, said)
    assert remedy in failed.remedy
    assert [check.step for check in passed if not check.ok] == []


def test_the_option_for_python_is_called_as_its_kind_calls_it() -> None:
    failed = checks_before("sh: 1: exec: python3: not found", local=False, python="login_python")[-1]
    assert "--option login_python=" in failed.remedy


@pytest.mark.anyio
async def test_a_root_on_this_machine_that_cannot_be_made_is_a_failed_check() -> None:
    (failed,) = [check async for check in onboard(LocalHost(root="/proc/nowhere/agent"))]
    assert (failed.step, failed.ok) == ("agent started", False)
    assert "/proc/nowhere/agent cannot be used" in failed.detail
    assert "--option root=" in failed.remedy


@pytest.mark.parametrize(
    ("declared", "ok"),
    [
        (DeclaredNode(), True),
        (DeclaredNode(cpu_millis=2000), True),
        (DeclaredNode(cpu_millis=1000), False),
        (DeclaredNode(cpu_millis=2000, memory_mib=1024), False),
    ],
)
def test_an_agent_that_offers_something_else_than_was_declared_is_no_pool(
    declared: DeclaredNode, ok: bool
) -> None:
    check = check_capacity(Resources(cpu_millis=2000, memory_mib=8192, disk_mib=7), declared)
    assert (check.step, check.ok) == ("capacity", ok)
    if not ok:
        assert "offers 2 cores, 8 GiB" in check.detail
        assert "--option root=" in check.remedy
