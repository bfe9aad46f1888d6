"""A task's image or sandbox, from the command line to the host: placed where it can be had, told where it cannot."""

import os
import re
from collections.abc import Generator
from pathlib import Path

import pytest

from integration.entrypoints.cli.conftest import Shell, free_port
from integration.infrastructure.host.sshd import ssh_server
from integration.scheduling.orchestration.stage import over_ssh
from support.agent_roots import agent_root
from support.containers import IMAGE, ContainerStore, container_store
from support.sandboxes import sandbox_environment
from tools import system_packages

pytestmark = pytest.mark.drives("host agent with podman")

TASK = f"""
image: docker:{IMAGE}
envs: {{EPOCHS: 3}}
secrets: [TOKEN]
resources: {{cpus: 0.5, memory: 64MB}}
setup: echo from setup > /shared/note
run: |
  cat /etc/where /shared/note
  echo $EPOCHS $TOKEN
  echo done > result.txt
outputs: [result.txt]
"""
SANDBOXED = """
runtime: sandboxed
envs: {EPOCHS: 3}
secrets: [TOKEN]
resources: {cpus: 0.5, memory: 256MB}
setup: dmesg | head -1 > note
run: |
  grep -ci gvisor note
  echo $EPOCHS $TOKEN
  echo done > result.txt
outputs: [result.txt]
"""


@pytest.fixture(scope="module")
def store() -> Generator[ContainerStore, None, None]:
    with container_store() as store:
        yield store


@pytest.fixture(scope="module")
def admin(store: ContainerStore, tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell, None, None]:
    home = tmp_path_factory.mktemp("images")
    with agent_root() as root, ssh_server() as server:
        # Whoever is not root cannot enter containers: a pool like that is the one that lacks them.
        elsewhere = over_ssh(server, "member")
        options = [f"--option={name}={value}" for name, value in elsewhere.options.items()]
        program = system_packages.find("runsc")
        path = {} if program is None else {"PATH": f"{Path(program).parent}:{os.environ['PATH']}"}
        admin = Shell(home / "home", home, extra={**store.environment, **path})
        try:
            up = admin("up", "--no-sample", "--port", str(free_port()), "--agent-root", root, timeout_s=110.0)
            assert up.returncode == 0, up.stderr
            added = admin.inside("pool", "add", "ssh", elsewhere.target, "--name", "elsewhere", *options)
            assert added.returncode == 0, added.stderr
            yield admin
        finally:
            admin("down")


def test_a_task_with_an_image_runs_in_it_from_setup_to_outputs(admin: Shell) -> None:
    (admin.cwd / "task.yaml").write_text(TASK)
    assert admin.inside("secret", "set", "TOKEN", typed="hush-99\n").returncode == 0
    ran = admin.inside("run", "-y", "task.yaml")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "this is the image\nfrom setup\n3 hush-99\n"
    assert re.search(r"elsewhere .*has no images", ran.stderr), ran.stderr
    assert "this-machine" in ran.stderr
    assert admin.inside("cp", "task:result.txt", ".").returncode == 0
    assert (admin.cwd / "result.txt").read_text() == "done\n"
    explained = admin.inside("explain", "task")
    assert "has no images" in explained.stdout, explained.stdout


def test_a_command_runs_in_an_image_named_by_an_option(admin: Shell) -> None:
    ran = admin.inside("run", "-y", "--image", IMAGE, "--", "cat", "/etc/where")
    assert (ran.returncode, ran.stdout) == (0, "this is the image\n"), ran.stderr


def test_an_image_that_cannot_be_had_fails_the_job_with_the_reason(admin: Shell) -> None:
    ran = admin.inside("run", "-y", "--image", "localhost/no-such-image:7", "--", "true")
    assert ran.returncode == 125
    assert "no container of image localhost/no-such-image:7" in ran.stderr


def test_where_no_pool_runs_images_the_nearest_is_named_and_what_it_lacks(admin: Shell) -> None:
    plan = admin.inside("run", "--dry-run", "--pool", "elsewhere", "--image", IMAGE, "--", "true")
    assert "has no images: " in plan.stdout, plan.stdout
    assert "allow pool this-machine" in plan.stdout
    assert "do without images: elsewhere has room" in plan.stdout


def test_what_is_no_image_is_refused_before_anything_is_sent(admin: Shell) -> None:
    refused = admin.inside("run", "-y", "--image=--privileged", "--", "true")
    assert refused.returncode not in (0, 125)
    assert "must be the name of a container image" in refused.stderr


def test_a_task_that_asks_for_a_sandbox_runs_in_one_and_pools_without_say_what_they_lack(
    admin: Shell,
) -> None:
    sandbox_environment()
    (admin.cwd / "sandboxed.yaml").write_text(SANDBOXED)
    assert admin.inside("secret", "set", "TOKEN", typed="hush-99\n").returncode == 0
    ran = admin.inside("run", "-y", "sandboxed.yaml")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "1\n3 hush-99\n"
    assert re.search(r"elsewhere .*has no sandboxed: .*install runsc", ran.stderr), ran.stderr
    assert admin.inside("cp", "sandboxed:result.txt", ".").returncode == 0
    shown = admin.inside("pool", "show", "elsewhere").stdout
    assert re.search(r"gVisor\).*missing", shown), shown
    assert re.search(r"gVisor\).*kept", admin.inside("pool", "show", "this-machine").stdout)


def test_a_sandbox_that_no_pool_has_leaves_the_job_waiting_with_the_reason(admin: Shell) -> None:
    plan = admin.inside("run", "--dry-run", "--pool=elsewhere", "--runtime=sandboxed", "--", "true")
    assert "has no sandboxed: its hosts have no working gVisor" in plan.stdout, plan.stdout
    assert "do without sandboxed: elsewhere has room" in plan.stdout
    refused = admin.inside("run", "-y", "--runtime=sandboxed", "--image", IMAGE, "--", "true")
    assert "runtime" in refused.stderr
    assert "keep one" in refused.stderr
