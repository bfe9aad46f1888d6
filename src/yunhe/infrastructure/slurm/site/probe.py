"""The first contact with a site, seen from its login node: one check after the other, the last a real job."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
import uuid
from typing import Any, Awaitable, Callable

from yunhe.agent.protocol.refusals import Refusal
from yunhe.infrastructure.slurm.site import answers
from yunhe.infrastructure.slurm.site.nodes import read_landscape
from yunhe.infrastructure.slurm.site.programs import SiteSettings, Slurm
from yunhe.infrastructure.slurm.site.states import meaning_of

OLDEST = (20, 11)
"""The first Slurm whose srun can put a command beside a job's own steps."""
PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "srun")
TRY_WITHIN_S = 20.0
LOOK_EVERY_S = 0.2
_SCRIPT = """#!/bin/sh
exec "$YUNHE_PYTHON" -I -S "$YUNHE_PROGRAM" probe --path "$YUNHE_PROBE"
"""

Tell = Callable[["dict[str, Any]"], Awaitable[None]]


class FailedCheck(Exception):  # noqa: N818 - the answer of a check
    """A check that failed: in words, with the remedy."""

    def __init__(self, detail: str, remedy: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.remedy = remedy


async def check_site(slurm: Slurm, settings: SiteSettings, program: str, tell: Tell) -> None:
    """Try everything a site needs to serve, in order, and tell each result; stop at the first that fails."""
    probe = Probe(slurm, settings, program)
    steps = (
        ("Slurm's programs", probe.programs),
        ("controller answers", probe.controller),
        ("version", probe.version),
        ("partition", probe.partition),
        ("may submit", probe.submission),
        ("a job runs", probe.job),
    )
    loop = asyncio.get_event_loop()
    for step, work in steps:
        try:
            detail = await loop.run_in_executor(None, work)
        except FailedCheck as failed:
            await tell({"step": step, "ok": False, "detail": failed.detail, "remedy": failed.remedy})
            return
        except Refusal as refusal:
            await tell({"step": step, "ok": False, "detail": refusal.problem, "remedy": refusal.remedy})
            return
        await tell({"step": step, "ok": True, "detail": detail})


class Probe:
    """The checks."""

    def __init__(self, slurm: Slurm, settings: SiteSettings, program: str) -> None:
        self._slurm = slurm
        self._settings = settings
        self._program = program
        self._configuration: dict[str, str] = {}

    def programs(self) -> str:
        """Find every program we call."""
        path = self._slurm.environment.get("PATH", "")
        lacking = [name for name in PROGRAMS if shutil.which(self._slurm.path(name), path=path) is None]
        if lacking:
            raise FailedCheck(
                f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not on this machine's path.",
                "Name a login node where they are, or their directory with --option programs=/opt/slurm/bin.",
            )
        return ", ".join(PROGRAMS)

    def controller(self) -> str:
        """Have the controller answer; whoever it does not trust is told so here."""
        try:
            self._configuration = answers.settings(self._slurm.ask("scontrol", "show", "config"))
        except Refusal as refusal:
            raise _not_heard(refusal) from None
        return self._configuration.get("ClusterName", "")

    def version(self) -> str:
        """Refuse a Slurm that lacks what we need."""
        version = self._configuration.get("SLURM_VERSION", "")
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if numbers < OLDEST:
            wanted = ".".join(map(str, OLDEST))
            raise FailedCheck(
                f"Slurm {version or 'of unknown version'} is too old: {wanted} or newer is needed.",
                "Have the site upgraded, or name the login node of a newer one.",
            )
        return version

    def partition(self) -> str:
        """Find the partition and its nodes."""
        landscape = read_landscape(self._slurm, self._settings)
        wanted = self._settings.partition
        if not landscape.partitions:
            everything = read_landscape(self._slurm, self._settings._replace(partition=""))
            raise FailedCheck(
                f"There is no partition {wanted}.",
                f"Choose one of {', '.join(sorted(everything.partitions))}.",
            )
        down = [partition.name for partition in landscape.partitions.values() if not partition.up]
        if len(down) == len(landscape.partitions):
            raise FailedCheck(f"{', '.join(down)} is not up.", "Ask the site's operators, or choose another.")
        cores = sum(node["total"]["cpu_millis"] for node in landscape.nodes.values()) // 1000
        count = len(landscape.nodes)
        return f"{', '.join(sorted(landscape.partitions))}: {count} node{'s' * (count != 1)}, {cores} cores"

    def submission(self) -> str:
        """Have Slurm judge a job like ours without taking it: account, quality of service, permission."""
        script = self._write_script("probe.sh")
        try:
            self._slurm.ask("sbatch", "--test-only", *self._words(), script)
        except Refusal as refusal:
            words = refusal.problem.partition(": ")[2]
            raise FailedCheck(words, self._remedy(words)) from None
        finally:
            os.unlink(script)
        return " ".join(self._words())

    def _remedy(self, words: str) -> str:
        lowered = words.lower()
        if "account" in lowered:
            return "Name an account of yours with --option account=… (sacctmgr show assoc user=$USER lists them)."
        if "qos" in lowered:
            return "Name a quality of service you may use with --option qos=…."
        if "access" in lowered or "permission" in lowered or "not permitted" in lowered:
            return "Ask the site's operators for access to the partition, or choose another with --option partition=…."
        return "Try the same with sbatch --test-only by hand."

    def _words(self) -> list[str]:
        pairs = {
            "partition": self._settings.partition,
            "account": self._settings.account,
            "qos": self._settings.qos,
            "time": "1",
        }
        return [f"--{name}={value}" for name, value in pairs.items() if value]

    def _write_script(self, name: str) -> str:
        path = os.path.join(self._settings.root, f"{uuid.uuid4().hex}.{name}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(_SCRIPT)
        return path

    def job(self) -> str:
        """Run a job that shows that a compute node has Python and sees our directory."""
        script = self._write_script("probe.sh")
        result = f"{script}.done"
        output = f"{script}.out"
        variables = {
            "YUNHE_PYTHON": self._settings.python,
            "YUNHE_PROGRAM": self._program,
            "YUNHE_PROBE": result,
        }
        words = ["--parsable", "--no-requeue", "--job-name=yunhe.check", f"--output={output}"]
        try:
            number = self._slurm.ask_with(variables, "sbatch", *words, *self._words(), script).strip()
            return self._follow(number.partition(";")[0], result, output)
        finally:
            for path in (script, result, output):
                if os.path.exists(path):
                    os.unlink(path)

    def _follow(self, number: str, result: str, output: str) -> str:
        until = time.monotonic() + TRY_WITHIN_S
        state = "PENDING"
        while time.monotonic() < until:
            if os.path.exists(result):
                with open(result, encoding="utf-8") as file:
                    return file.read()
            if meaning_of(state).over:
                break
            state = self._slurm.ask(
                "squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T"
            ).strip()
            time.sleep(LOOK_EVERY_S)
        if meaning_of(state).waits:
            self._slurm.ask("scancel", number)
            return f"not tried: no node was free within {TRY_WITHIN_S:g} s"
        said = ""
        if os.path.exists(output):
            with open(output, encoding="utf-8", errors="replace") as file:
                said = file.read()[-300:].strip()
        raise FailedCheck(
            f"Job {number} is {state} and left nothing in {self._settings.root}. {said}".strip(),
            "Choose a root that every node sees with --option root=…, and a Python of the compute nodes with --option python=….",
        )


def _not_heard(refusal: Refusal) -> FailedCheck:
    """Tell a controller that is away from one that does not trust this login node."""
    if not re.search(r"authenticat|munge|credential|Access/permission", refusal.problem, re.IGNORECASE):
        return FailedCheck(refusal.problem, "See that slurmctld runs: scontrol ping on the login node tells.")
    said = [words for words in refusal.problem.split("; ") if "--num-threads" not in words]
    return FailedCheck(
        f"Slurm does not trust this login node's credentials (munge): {'; '.join(said)}",
        "See that munged runs on the login node with the cluster's key, and that slurm.conf names its socket.",
    )


def answer_probe(path: str) -> int:
    """Say from inside a job that it runs; the directory is there because somebody at the login node made it."""
    fresh = f"{path}.new"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(f"on {os.environ.get('SLURMD_NODENAME', 'a node')}")
    os.replace(fresh, path)
    return 0
