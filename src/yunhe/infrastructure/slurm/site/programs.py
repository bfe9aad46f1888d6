"""Slurm's own programs. Each has a time limit: they wait for minutes when the controller is away."""

from __future__ import annotations

import os
import re
import subprocess
from typing import NamedTuple

from yunhe.agent.protocol.refusals import INVALID, NOT_FOUND, RESTARTING, Refusal

ANSWER_WITHIN_S = 12.0
_AWAY = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|Connection refused"
    r"|Resource temporarily unavailable|slurmctld.*(?:DOWN|not responding)|Unable to establish controller"
    r"|controller is in standby|Transport endpoint is not connected|persistent connection",
    re.IGNORECASE,
)
_OTHERS_WISHES = ("SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SALLOC_", "SCANCEL_")


class SiteSettings(NamedTuple):
    """What the operator said of the site."""

    root: str
    partition: str = ""
    account: str = ""
    qos: str = ""
    time_limit_s: int = 0
    python: str = "python3"
    """What runs our part of a job on a compute node."""
    configuration: str = ""
    programs: str = ""
    """The directory of Slurm's programs, where it is not on the path."""


class Slurm:
    """Runs Slurm's programs."""

    def __init__(self, settings: SiteSettings) -> None:
        self._directory = settings.programs
        self.environment = _environment(settings)

    def ask(self, program: str, *arguments: str, timeout_s: float = ANSWER_WITHIN_S) -> str:
        """Return what *program* prints; refuse in its own words when it fails."""
        return self.ask_with({}, program, *arguments, timeout_s=timeout_s)

    def ask_with(
        self, variables: dict[str, str], program: str, *arguments: str, timeout_s: float = ANSWER_WITHIN_S
    ) -> str:
        """Return what *program* prints with *variables* in its environment, which is no place others can see."""
        try:
            done = subprocess.run(
                [self.path(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**self.environment, **variables},
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise away(f"{program} did not answer within {timeout_s:g} s.") from None
        except (FileNotFoundError, PermissionError) as fault:
            raise Refusal(
                NOT_FOUND,
                f"{program} cannot be run on this machine: {fault.strerror}.",
                remedy="Name a login node where Slurm's programs are, or their directory with --option programs=….",
            ) from None
        if done.returncode != 0:
            raise refused(program, done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="replace")

    def path(self, program: str) -> str:
        """Return how *program* is called."""
        return os.path.join(self._directory, program) if self._directory else program


def refused(program: str, said: str) -> Refusal:
    """Return the refusal for what a program said on its standard error."""
    lines = [line.partition("error: ")[2] or line for line in said.strip().splitlines()]
    words = "; ".join(line.strip().rstrip(".") for line in lines[-4:]) or "it failed and said nothing"
    if _AWAY.search(said):
        return away(f"Slurm's controller does not answer {program}: {words}.")
    return Refusal(INVALID, f"{program}: {words}.", fields=[{"field": program, "problem": words[:400]}])


def away(problem: str) -> Refusal:
    """Return the refusal for a controller that cannot be heard."""
    return Refusal(
        RESTARTING,
        problem,
        remedy="See that slurmctld runs (scontrol ping); jobs that run go on meanwhile, and calls may be repeated.",
    )


def _environment(settings: SiteSettings) -> dict[str, str]:
    """Return our environment without what its owner may have set to change Slurm's programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OTHERS_WISHES)}
    configuration = settings.configuration or os.environ.get("SLURM_CONF", "")
    if configuration:
        kept["SLURM_CONF"] = configuration
    return {**kept, "LC_ALL": "C.UTF-8"}
