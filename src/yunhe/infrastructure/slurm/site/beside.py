"""A command beside a running job: srun puts it into the job's own allocation, on its node and in its limits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

from yunhe.agent.daemon.tasks import TaskSet
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.refusals import CONFLICT, Refusal
from yunhe.agent.protocol.streams import feed, open_pipes, open_terminal, pass_on
from yunhe.agent.runs.directory import Run
from yunhe.agent.runtimes.programs import COULD_NOT_START
from yunhe.infrastructure.slurm.site.job import task_environment
from yunhe.infrastructure.slurm.site.ledger import Ledger, job_number
from yunhe.infrastructure.slurm.site.programs import SiteSettings, Slurm
from yunhe.infrastructure.slurm.site.watch import SlurmWatch

END_WITHIN_S = 3.0


class JobCommands:
    """The verb that runs a command beside a job."""

    def __init__(
        self, ledger: Ledger, slurm: Slurm, watch: SlurmWatch, settings: SiteSettings, program: str
    ) -> None:
        self._ledger = ledger
        self._slurm = slurm
        self._watch = watch
        self._python = settings.python
        self._program = program

    async def run(self, call: Call) -> None:
        """Run the command of *call*; it ends when the caller leaves."""
        run = self._ledger.known(call.body["allocation_id"])
        seen = self._watch.look(run.id)
        if seen is None or seen["phase"] != "running":
            raise Refusal(CONFLICT, f"{run.id} is {seen['phase'] if seen else 'unknown'}, not running.")
        tty = call.body.get("tty", False)
        ours, theirs = open_terminal(call) if tty else open_pipes()
        held = set(ours)
        tasks = TaskSet()
        process: subprocess.Popen[bytes] | None = None
        try:
            try:
                process = self._start(run, call.body["argv"], theirs, tty=tty)
            finally:
                for handle in set(theirs):
                    os.close(handle)
            tasks.start(feed(call, ours[0], held, tty=tty))
            await pass_on(call, ours[1])
            code = await asyncio.get_event_loop().run_in_executor(None, process.wait)
        finally:
            await tasks.dismiss()
            for handle in held:
                os.close(handle)
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)  # srun ends its step, then itself
                asyncio.get_event_loop().run_in_executor(None, _reap, process)
        await call.answer({"exit_code": code if code >= 0 else 128 - code})

    def _start(
        self, run: Run, argv: list[str], theirs: tuple[int, int], *, tty: bool
    ) -> subprocess.Popen[bytes]:
        words = [f"--jobid={job_number(run)}", "--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--quiet"]
        words += ["--pty"] if tty else []
        inside = [self._python, "-I", "-S", self._program, "beside", "--run", run.path, "--", *argv]
        return subprocess.Popen(
            [self._slurm.path("srun"), *words, *inside],
            stdin=theirs[0],
            stdout=theirs[1],
            stderr=subprocess.DEVNULL,  # what the command itself says there comes with its output
            env=self._slurm.environment,
            start_new_session=True,
        )


def become_command(path: str, argv: list[str]) -> int:
    """Become the command, on the compute node: in the task's directory and environment, without its secrets."""
    run = Run(os.path.dirname(path), os.path.basename(path))
    claim = run.record("claim")
    os.dup2(1, 2)
    if claim is None:
        sys.stderr.write(f"there is no claim in {path}\n")
        return COULD_NOT_START
    environment = task_environment(run, claim, {})
    environment.setdefault("TERM", os.environ.get("TERM", "xterm-256color"))
    try:
        os.chdir(run.work)
        os.execvpe(argv[0], argv, environment)
    except OSError as fault:
        sys.stderr.write(f"{argv[0]}: {fault.strerror}\n")
    return COULD_NOT_START + 2


def _reap(process: subprocess.Popen[Any]) -> None:
    try:
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
