"""Real engines as an operator meets them: one command that must be accepted, and one for each cause of a refusal."""

import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from engines.http_gate import Rule, http_gate
from engines.kubernetes.cluster import READER, Cluster, free_ports
from engines.kubernetes.faulty_proxy import Answer, faulty_proxy
from engines.ray_cluster import RayIsMissingError, ray_cluster, ray_python
from engines.slurm.cluster import slurm_cluster
from engines.slurm.sshd import login_node
from integration.control.plugins.go_instances import end, go_manifest, start_go
from integration.control.plugins.platform_process import PlatformProcess
from integration.control.plugins.processes import plugin_key, until
from integration.infrastructure.host.sshd import SshServer, ssh_server
from support.go_plugin import built_go_plugin
from yunhe.control.plugins.model import PluginState
from yunhe.entrypoints.client import Client


class Cause(StrEnum):
    """Why a pool cannot be added."""

    CREDENTIALS = "wrong credentials"
    UNREACHABLE = "unreachable"
    VERSION = "wrong version"
    PERMISSION = "missing permission"
    STRANGER = "something else answers"
    """Only where an engine is an address, at which anything could be."""


class Refused(NamedTuple):
    """A command that must fail, and what it must say."""

    words: tuple[str, ...]
    """What follows ``yunhe``, but for the name."""
    step: str
    """The check that fails; empty where it is refused before any."""
    problem: tuple[str, ...]
    """What the problem must name: the cause and where it lies."""
    remedy: tuple[str, ...]
    """What the remedy must name."""


class Site(NamedTuple):
    """An engine, seen from the command line."""

    accepted: tuple[str, ...]
    refused: dict[Cause, Refused]


ADD = ("pool", "add")


def options(**chosen: object) -> tuple[str, ...]:
    return tuple(word for name, value in chosen.items() for word in ("--option", f"{name}={value}"))


def old_python() -> str:
    """Return a Python that the agent is too new for; skip where there is none."""
    for version in ("3.7", "3.6", "2.7"):
        pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
        for found in (shutil.which(f"python{version}"), *map(str, pyenv)):
            if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
                return found
    return pytest.skip("no Python older than 3.8 here")


# Hosts


@contextmanager
def ssh_site() -> Generator[Site]:
    with ssh_server() as server:
        words = (*ADD, "ssh", server.target("root").destination)
        strange = str(server.directory / "host_key")  # a key, but of nobody who may enter
        how = options(ssh_config=ssh_config(server), root=server.root_of("root"))
        key = ("--port", "2222", "--identity", str(server.directory / "key"))
        python = options(python="/usr/bin/python3")
        (port,) = free_ports(1)
        member = (*ADD, "ssh", server.target("member").destination)
        yield Site(
            accepted=(*words, *how, *key, *python),
            refused={
                Cause.CREDENTIALS: Refused(
                    (
                        *words,
                        *how,
                        *python,
                        "--port",
                        "2222",
                        "--identity",
                        strange,
                    ),
                    "key accepted",
                    ("Permission denied", "publickey"),
                    ("authorized_keys", "--identity"),
                ),
                Cause.UNREACHABLE: Refused(
                    (*words, *how, *python, "--port", str(port), "--identity", str(server.directory / "key")),
                    "reachable",
                    ("Connection refused", str(port)),
                    ("port", "network"),
                ),
                Cause.VERSION: Refused(
                    (*words, *how, *key, *options(python=old_python())),
                    "python found",
                    ("on the host is too old",),
                    ("3.8", "--option python="),
                ),
                Cause.PERMISSION: Refused(
                    (*member, *options(ssh_config=ssh_config(server), root="/root/agent"), *key, *python),
                    "agent started",
                    ("the root /root/agent cannot be used", "Permission denied"),
                    ("--option root=",),
                ),
            },
        )


def ssh_config(server: SshServer) -> Path:
    path = server.directory / "ssh_config"
    path.write_text(
        f"UserKnownHostsFile {server.directory}/known_hosts\nStrictHostKeyChecking yes\nIdentitiesOnly yes\n"
    )
    return path


# Slurm


@contextmanager
def slurm_site(folder: Path) -> Generator[Site]:
    with slurm_cluster() as cluster, login_node(folder) as ssh_config:
        conf, root = cluster.configuration, cluster.directory / "onboarding"
        base = options(ssh_config=ssh_config, root=root, python=sys.executable)
        here = (*base, *options(slurm_conf=conf))
        yield Site(
            accepted=(*ADD, "slurm", "login", *here, *options(partition="main")),
            refused={
                Cause.CREDENTIALS: Refused(
                    (
                        *ADD,
                        "slurm",
                        "login",
                        *base,
                        *options(
                            slurm_conf=_changed_line(conf, folder, "AuthInfo", f"socket={folder}/nobody")
                        ),
                    ),
                    "controller answers",
                    ("does not trust", "munge", "nobody"),
                    ("munged", "login node"),
                ),
                Cause.UNREACHABLE: Refused(
                    (
                        *ADD,
                        "slurm",
                        "login",
                        *base,
                        *options(
                            slurm_conf=_changed_line(conf, folder, "SlurmctldPort", str(free_ports(1)[0]))
                        ),
                    ),
                    "controller answers",
                    ("controller does not answer",),
                    ("slurmctld runs", "scontrol ping"),
                ),
                Cause.VERSION: Refused(
                    (*ADD, "slurm", "login", *here, *options(programs=_old_slurm(folder))),
                    "version",
                    ("19.05.8 is too old", "20.11"),
                    ("upgraded", "login node"),
                ),
                Cause.PERMISSION: Refused(
                    (*ADD, "slurm", "login", *here, *options(partition="closed", account="nobodys")),
                    "may submit",
                    ("account",),
                    ("--option account=",),
                ),
            },
        )


def _changed_line(configuration: Path, folder: Path, name: str, value: str) -> Path:
    path = folder / f"{name}.conf"
    lines = configuration.read_text().splitlines()
    path.write_text(
        "\n".join(f"{name}={value}" if line.startswith(f"{name}=") else line for line in lines) + "\n"
    )
    return path


def _old_slurm(folder: Path) -> Path:
    """Return a folder of the real programs, of which the one that tells the version tells an old one."""
    programs = folder / "old"
    programs.mkdir()
    for name in ("sbatch", "squeue", "scancel", "srun"):
        (programs / name).symlink_to(shutil.which(name) or "")
    (programs / "scontrol").write_text(
        f'#!/bin/sh\n{shutil.which("scontrol")} "$@" | sed "s/^SLURM_VERSION .*/SLURM_VERSION = 19.05.8/"\n'
    )
    (programs / "scontrol").chmod(0o755)
    return programs


def login_page() -> AbstractContextManager[str]:
    """Stand where an engine should be; return the address."""
    return http_gate("", Rule("", 200, b"<html>Please log in</html>"))


# Kubernetes


@contextmanager
def kubernetes_site(cluster: Cluster, folder: Path) -> Generator[Site]:
    with faulty_proxy(cluster) as proxy, login_page() as page:
        version = b'{"major":"1","minor":"24","gitVersion":"v1.24.17"}'
        proxy.answers.append(Answer("^GET /version", "200 OK", body=version, times=1000))
        proxy.answers.append(Answer("selfsubjectreviews", "404 Not Found", times=1000))  # came with 1.28
        nowhere = f"https://127.0.0.1:{free_ports(1)[0]}"
        good = cluster.kubeconfig()
        yield Site(
            accepted=(*ADD, "kubernetes", *options(kubeconfig=good)),
            refused={
                Cause.CREDENTIALS: Refused(
                    (
                        *ADD,
                        "kubernetes",
                        *options(kubeconfig=_changed_kubeconfig(good, folder / "token", token="wrong")),
                    ),
                    "credentials accepted",
                    ("does not accept the credentials", cluster.url, "401"),
                    ("kubeconfig", "kubectl get nodes"),
                ),
                Cause.UNREACHABLE: Refused(
                    (
                        *ADD,
                        "kubernetes",
                        *options(kubeconfig=_changed_kubeconfig(good, folder / "away", server=nowhere)),
                    ),
                    "reachable",
                    (nowhere,),
                    ("address", "network"),
                ),
                Cause.VERSION: Refused(
                    (*ADD, "kubernetes", *options(kubeconfig=cluster.kubeconfig(server=proxy.url))),
                    "version",
                    ("v1.24.17 is too old", "1.29"),
                    ("Upgrade the cluster",),
                ),
                Cause.PERMISSION: Refused(
                    (*ADD, "kubernetes", *options(kubeconfig=cluster.kubeconfig(READER))),
                    "permissions",
                    (READER, "create/patch/delete pods"),
                    ("kubectl apply", "kind: ClusterRole", f'name: "{READER}"'),
                ),
                Cause.STRANGER: Refused(
                    (
                        *ADD,
                        "kubernetes",
                        *options(kubeconfig=_changed_kubeconfig(good, folder / "page", server=page)),
                    ),
                    "is Kubernetes",
                    ("no Kubernetes API", page, "Please log in"),
                    ("kubectl version", "kubeconfig"),
                ),
            },
        )


def _changed_kubeconfig(kubeconfig: Path, file: Path, *, server: str = "", token: str = "") -> Path:
    config = yaml.safe_load(kubeconfig.read_text())
    if server:
        config["clusters"][0]["cluster"]["server"] = server
    if token:
        config["users"][0]["user"]["token"] = token
    file.write_text(yaml.safe_dump(config))
    return file


# Ray


@contextmanager
def ray_site(folder: Path) -> Generator[Site]:
    try:
        ray_python()
    except RayIsMissingError as reason:
        pytest.skip(str(reason))
    right, wrong = folder / "right", folder / "wrong"
    right.write_text("hush-" * 8)
    wrong.write_text("guess")
    with ExitStack() as stack:
        cluster = stack.enter_context(ray_cluster(workers=0, token="hush-" * 8))
        old = stack.enter_context(
            http_gate(cluster.url, Rule(r"GET /api/version", 200, b'{"ray_version": "2.9.3"}'))
        )
        read_only = stack.enter_context(http_gate(cluster.url, Rule("(POST|PUT) ", 403, b"read only")))
        page = stack.enter_context(login_page())
        (port,) = free_ports(1)
        token = options(token_file=right)
        yield Site(
            accepted=(*ADD, "ray", cluster.url, *token),
            refused={
                Cause.CREDENTIALS: Refused(
                    (*ADD, "ray", cluster.url, *options(token_file=wrong)),
                    "token accepted",
                    ("refuses our token",),
                    ("RAY_AUTH_TOKEN", "token_file"),
                ),
                Cause.UNREACHABLE: Refused(
                    (*ADD, "ray", f"http://127.0.0.1:{port}", *token),
                    "reachable",
                    (f"127.0.0.1:{port}", "did not answer"),
                    ("address", "--dashboard-host"),
                ),
                Cause.VERSION: Refused(
                    (*ADD, "ray", old, *token), "version", ("2.9.3", "2.46"), ("Upgrade Ray",)
                ),
                Cause.PERMISSION: Refused(
                    (*ADD, "ray", read_only, *token),
                    "a job runs",
                    ("may not", "/api/packages/"),
                    ("proxy",),
                ),
                Cause.STRANGER: Refused(
                    (*ADD, "ray", page, *token), "version", ("not a Ray dashboard", page), ("8265",)
                ),
            },
        )


# A plugin of another vendor


@contextmanager
def plugin_site(platform: PlatformProcess, folder: Path) -> Generator[Site]:
    """Three plugins of one program: one that is there, one that was killed, one whose key is not accepted."""
    built = built_go_plugin()
    there, gone, stranger = (go_manifest(built, folder, name, "1") for name in ("there", "gone", "stranger"))
    future = folder / "future"
    future.mkdir()
    text = go_manifest(built, future, "future", "1").read_text()
    (future / "plugin.toml").write_text(text.replace("contract = 1", "contract = 99"))
    platform.allow_plugins()
    with platform.client() as client:
        known = {there: plugin_key(client, "there"), gone: plugin_key(client, "gone"), stranger: "wrong"}
    processes = [start_go(built, manifest, platform.url, key, "one") for manifest, key in known.items()]
    try:
        with platform.client() as client:
            until(lambda: {"there", "gone"} <= {plugin.name for plugin in client.plugins()})
            processes[1].kill()
            until(lambda: _state(client, "gone") is PluginState.OFFLINE)
        until(lambda: "key" in stranger.with_suffix(".one.log").read_text())
        yield _plugin_cells(folder, future)
    finally:
        for process in processes:
            end(process)


def _state(client: Client, name: str) -> PluginState | None:
    return next((plugin.state for plugin in client.plugins() if plugin.name == name), None)


def _plugin_cells(folder: Path, future: Path) -> Site:
    return Site(
        accepted=(*ADD, "there", str(folder / "pool")),
        refused={
            Cause.CREDENTIALS: Refused(
                (*ADD, "stranger", str(folder / "pool")),
                "",
                ("no engine of kind 'stranger'",),
                ("the plugin's log", "key"),
            ),
            Cause.UNREACHABLE: Refused(
                (*ADD, "gone", str(folder / "pool")),
                "",
                ("Plugin gone has not been heard of",),
                ("yunhe plugin show gone",),
            ),
            Cause.VERSION: Refused(
                ("plugin", "add", str(future)),
                "",
                ("version 99 of the plugin contract", "speaks 1"),
                ("Upgrade whichever",),
            ),
            Cause.PERMISSION: Refused(
                (*ADD, "there", "/sys/kernel/pool"),
                "directory",
                ("/sys/kernel/pool", "not permitted"),
                ("may write to",),
            ),
        },
    )
