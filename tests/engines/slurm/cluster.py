"""A real Slurm on this machine: one controller and four nodes on loopback, all of it in one directory."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.host.target import LocalHost
from yunhe.infrastructure.slurm.target import read_target

NODES = ("n1", "n2", "n3", "n4")
NEEDED = ("slurmctld", "slurmd", "sbatch", "munged")
START_WITHIN_S = 60.0
END_WITHIN_S = 10.0

_CONFIGURATION = """
ClusterName=yunhetest
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=20000,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SwitchType=switch/none
MpiDefault=none
EnforcePartLimits=ALL
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldParameters=idle_on_node_suspend
MinJobAge=300
MessageTimeout=5
KillWait=2
UnkillableStepTimeout=20
CompleteWait=0
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PreemptMode=OFF
PartitionName=short Nodes=n1,n2 MaxTime=10 State=UP PreemptMode=OFF
PartitionName=scavenge Nodes=n3 PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=urgent Nodes=n3 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=closed Nodes=n4 AllowAccounts=research State=UP PreemptMode=OFF
PartitionName=members Nodes=n4 AllowGroups=nogroup State=UP PreemptMode=OFF
"""


class SlurmCluster:
    """The daemons of a cluster; each can be ended and started again by name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.configuration = directory / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Return what points Slurm's programs at this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.configuration)}

    def target(
        self, *, root: str = "site", environment: dict[str, str] | None = None, **options: str
    ) -> LocalHost:
        """Return this machine as the login node; *options* are those of the kind."""
        chosen = {"root": str(self.directory / root), "slurm_conf": str(self.configuration)}
        chosen |= {"python": sys.executable, **options}  # what is first on the path may be a slow shim
        target = read_target(Target(options=chosen))
        assert isinstance(target, LocalHost)
        return msgspec.structs.replace(target, environment=environment or {})

    def start_all(self) -> None:
        """Start every daemon and wait until every node is idle."""
        self._start("munged", self._munge_command())
        wait_for((self.directory / "munge" / "socket").exists, "munged listens")
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        wait_for(lambda: self.states() == ["idle"] * len(NODES), "every node is idle")

    def _munge_command(self) -> list[str]:
        key = self.directory / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        words = {"key-file": key, "socket": key.with_name("socket"), "pid-file": key.with_name("pid")}
        words |= {"log-file": key.with_name("log"), "seed-file": key.with_name("seed")}
        return ["munged", "-F", "--force", "--num-threads=2", *(f"--{k}={v}" for k, v in words.items())]

    def start_controller(self) -> None:
        """Start the controller and wait until it answers."""
        self._start("slurmctld", ["slurmctld", "-D", "-f", str(self.configuration)])
        wait_for(lambda: "UP" in self.ask("scontrol", "ping"), "the controller answers")

    def start_node(self, node: str) -> None:
        """Start the daemon of *node*."""
        self._start(node, ["slurmd", "-D", "-N", node, "-f", str(self.configuration)])

    def _start(self, name: str, command: list[str]) -> None:
        with (self.directory / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self.environment, "PATH": f"{os.environ['PATH']}:/usr/sbin"},
                start_new_session=True,
            )

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """End one daemon; what it had started goes on."""
        process = self._daemons.pop(name)
        process.send_signal(number)
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_WITHIN_S)

    def kill_controller(self) -> None:
        """Kill the controller as a power cut would, once it has saved its state: it does so every five seconds."""
        asked = time.time()
        until = time.monotonic() + 6.0
        while (self.directory / "state" / "job_state").stat().st_mtime < asked and time.monotonic() < until:
            time.sleep(0.1)
        self.end("slurmctld", signal.SIGKILL)

    def end_all(self) -> None:
        """End every job, then every daemon."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.ask("scancel", "--full", "--signal=KILL", "--user=root")
            self.ask("scancel", "--user=root")
            wait_for(lambda: not self.ask("squeue", "--noheader"), "no job is left")
        for name in reversed(list(self._daemons)):
            self.end(name)

    def ask(self, *command: str) -> str:
        """Return what one of Slurm's programs prints; empty when it fails."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=30, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    def states(self) -> list[str]:
        """Return the state of every node."""
        return self.ask(
            "sinfo", "--noheader", "--Node", "--format=%T", "--partition=main,scavenge,closed"
        ).split()

    def jobs(self, allocation_id: str) -> list[str]:
        """Return the numbers of every job of an allocation that Slurm remembers."""
        listed = self.ask("squeue", "--noheader", "--states=all", "--format=%i %j").splitlines()
        return [number for number, name in map(str.split, listed) if name.endswith(allocation_id)]


@contextmanager
def slurm_cluster() -> Generator[SlurmCluster]:
    """Start a cluster; skip where the test may not or the programs are missing."""
    for program in NEEDED:
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"needs {program}: run tools/system_packages.py test as root")
    if os.geteuid() != 0:
        pytest.skip("needs root: Slurm's daemons start jobs as other users")
    directory = Path(tempfile.mkdtemp(prefix="yunhe-slurm-"))
    directory.chmod(0o755)
    cluster = SlurmCluster(directory)
    try:
        _write_configuration(directory)
        cluster.start_all()
        yield cluster
    finally:
        cluster.end_all()
        shutil.rmtree(directory, ignore_errors=True)


def _write_configuration(directory: Path) -> None:
    for name in ("munge", "state", "spool"):
        (directory / name).mkdir(mode=0o755)
    ports = _free_ports(1 + len(NODES))
    nodes = "\n".join(
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=4000 State=UNKNOWN"
        for name, port in zip(NODES, ports[1:], strict=True)
    )
    text = _CONFIGURATION.format(ports=ports, directory=directory, nodes=nodes)
    (directory / "slurm.conf").write_text(text)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def wait_for(happened: Callable[[], bool], what: str, within_s: float = START_WITHIN_S) -> None:
    """Return once *happened*; fail with *what* did not."""
    until = time.monotonic() + within_s
    while not happened():
        if time.monotonic() > until:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        time.sleep(0.1)
