"""The lists of failpoints say what the code has: none is missing, none is left over, each stands in one place."""

import ast
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import yunhe
from yunhe.agent.failpoints import ALL as AGENT
from yunhe.observability.failpoints import PRUNING, SERVER

SOURCE = Path(yunhe.__file__).parent


def calls(folder: Path, function: str) -> Counter[str]:
    """Return the names with which *function* is called below *folder*."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=called), args=[ast.Constant(value=str(name))]) if (
                    called == function
                ):
                    found[name] += 1
                case _:
                    continue
    return found


def test_every_failpoint_of_a_server_is_in_its_list_and_in_the_code_once() -> None:
    assert calls(SOURCE, "failpoint") == Counter(SERVER + PRUNING)


def test_every_failpoint_of_an_agent_is_in_its_list_and_in_the_code_once() -> None:
    assert calls(SOURCE / "agent", "reach") == Counter(AGENT)


def test_no_two_failpoints_have_the_same_name() -> None:
    assert not set(SERVER) & set(AGENT)


@pytest.mark.parametrize("module", ["yunhe.observability.failpoints", "yunhe.agent.failpoints"])
def test_a_failpoint_kills_only_if_asked_for_and_once(tmp_path: Path, module: str) -> None:
    name, function = (SERVER[0], "failpoint") if "observability" in module else (AGENT[0], "reach")
    program = f"from {module} import {function}; {function}({name!r})"

    def run(**environment: str) -> int:
        return subprocess.run(
            [sys.executable, "-c", program], env={**paths, **environment}, check=False
        ).returncode

    paths = {"PYTHONPATH": str(SOURCE.parent)}
    asked = {"YUNHE_FAILPOINT": f"other,{name}", "YUNHE_FAILPOINT_DIR": str(tmp_path)}
    assert run() == 0
    assert run(YUNHE_FAILPOINT="other", YUNHE_FAILPOINT_DIR=str(tmp_path)) == 0
    assert run(**asked) == -signal.SIGKILL
    assert run(**asked) == 0


def test_a_failpoint_may_freeze_instead_and_goes_on_when_thawed(tmp_path: Path) -> None:
    program = f"from yunhe.agent.failpoints import reach; reach({AGENT[0]!r})"
    environment = {
        "PYTHONPATH": str(SOURCE.parent),
        "YUNHE_FAILPOINT": f"{AGENT[0]}:stop",
        "YUNHE_FAILPOINT_DIR": str(tmp_path),
    }
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.wait(20) == 0
