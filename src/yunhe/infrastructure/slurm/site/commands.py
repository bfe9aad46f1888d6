"""Launch, stop, release, pause. Intent is on the disk before any effect; what they began is seen by looking."""

from __future__ import annotations

import os
import time
from typing import Any, Callable

from yunhe.agent.failpoints import reach
from yunhe.agent.protocol.refusals import CONFLICT, INVALID, UNSUPPORTED, Refusal, refusal_of
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.environment import DEFAULT_GRACE_S
from yunhe.infrastructure.slurm.site import submission, usage
from yunhe.infrastructure.slurm.site.answers import PREFIX
from yunhe.infrastructure.slurm.site.ledger import Ledger, job_number
from yunhe.infrastructure.slurm.site.nodes import Landscape, Partition
from yunhe.infrastructure.slurm.site.programs import SiteSettings, Slurm
from yunhe.infrastructure.slurm.site.watch import SlurmWatch

DEFAULT_LOG_BYTES = 64 * 1024 * 1024
NUDGE_WITHIN_S = 5.0
LIVE = ("preparing", "starting", "running", "paused")


class Commands:
    """What may be done to an allocation."""

    def __init__(
        self, ledger: Ledger, slurm: Slurm, watch: SlurmWatch, settings: SiteSettings, program: str
    ) -> None:
        self._ledger = ledger
        self._slurm = slurm
        self._watch = watch
        self._settings = settings
        self._program = program

    # Beginning

    def launch(self, order: dict[str, Any], landscape: Callable[[], Landscape]) -> None:
        """Claim the order, durably, and hand it to Slurm; a repeated one only takes the token over."""
        name, token = order["allocation_id"], order["token"]
        with self._ledger.commanding(name) as run:
            owner = self._ledger.fence(run, token)
            if self._ledger.mark_of(name) is not None:
                self._ledger.mark(name, token)
                return  # stopped before it came, or released: either way its time is over
            if owner is not None and token > owner["token"]:
                self._ledger.own(run, token=token)
            if owner is not None and owner.get("stopped"):
                return
            claimed = run.record("claim") is not None
            if claimed and (run.record("job") or run.record("start") or self._find_job(run)):
                return
            partition = submission.check_order(order, self._settings, landscape())
            if not claimed:
                self._claim(run, order, owner)
            self._submit(run, order, partition)

    def _claim(self, run: Run, order: dict[str, Any], owner: dict[str, Any] | None) -> None:
        if owner is not None and owner["project_id"] != order["project_id"]:
            raise Refusal(CONFLICT, f"{run.id} holds files of project {owner['project_id']}.")
        self._ledger.admit_project(order["project_id"])
        claim = {key: value for key, value in order.items() if key not in ("secrets", "steps")}
        claim.update(steps=[step["name"] for step in order["steps"]], claimed_at=time.time())
        claim.setdefault("log_limit_bytes", DEFAULT_LOG_BYTES)
        reach("before-claim")
        try:
            run.make(os.geteuid())
            run.write_steps(order["steps"], os.geteuid())
            with open(run.at("job.sh"), "w", encoding="utf-8") as file:
                file.write(submission.SCRIPT)
            self._ledger.own(run, token=order["token"], project_id=order["project_id"])
            run.claim(claim)
        except OSError as fault:
            if owner is None:
                self._ledger.discard(run)
            raise refusal_of(fault, f"claiming {run.id}") from fault
        reach("after-claim")

    def _submit(self, run: Run, order: dict[str, Any], partition: Partition) -> None:
        """Have sbatch take the job; where it says no, nothing is left of the claim."""
        words = submission.arguments_of(run, order, self._settings, partition)
        secrets = order.get("secrets", {})
        variables = submission.environment_of_job(run, self._settings, self._program, secrets)
        reach("before-spawn")
        try:
            number = self._slurm.ask_with(variables, "sbatch", *words).strip().partition(";")[0]
        except Refusal as refusal:
            if refusal.code == INVALID:
                self._ledger.discard(run)
            raise
        reach("after-spawn")
        run.write_record("job", {"job": number, "at": time.time()})

    def _find_job(self, run: Run) -> bool:
        """Find the job of a claim whose helper died before it could note the number."""
        asked = ["--noheader", "--me", "--states=all", f"--name={PREFIX}{run.id}", "--format=%i"]
        numbers = self._slurm.ask("squeue", *asked).split()
        if numbers:
            run.write_record("job", {"job": numbers[0], "at": time.time()})
        return bool(numbers)

    # Ending

    def stop(self, body: dict[str, Any]) -> None:
        """Begin to end an allocation, or leave a mark where there is none."""
        name, token = body["allocation_id"], body["token"]
        with self._ledger.commanding(name) as run:
            owner = self._ledger.fence(run, token)
            reach("before-stop-record")
            if owner is None:
                self._ledger.mark(name, token)
                return
            seen = self._watch.look(name) or {"phase": "unknown"}
            claimed = run.record("claim") is not None
            self._ledger.own(run, token=token, **({} if claimed else {"stopped": True}))
            if not claimed or seen["phase"] not in LIVE:
                return
            wish = {"grace_s": body.get("grace_s", DEFAULT_GRACE_S), "token": token, "at": time.time()}
            run.write_record("stop", wish)
            reach("after-stop-record")
            if run.create_record("start", {"abandoned": True}):
                self._end_unstarted(run)
        self._nudge(run, paused=seen["phase"] == "paused")

    def _end_unstarted(self, run: Run) -> None:
        """Record the end of a job that has not begun, and now never will: the start record is taken."""
        record = {"exit_code": None, "ending": "stopped", "step": "", "detail": "stopped before it began"}
        run.create_record("end", {**record, "ended_at": time.time(), "log_bytes": 0, "meters": {}})

    def _nudge(self, run: Run, *, paused: bool) -> None:
        """Have the job see its stop record now; without a controller it looks by itself within a second."""
        number = job_number(run)
        unstarted = "pid" not in (run.record("start") or {})
        words = [] if unstarted or paused else ["--batch", "--signal=USR1"]
        if number:
            try:
                self._slurm.ask("scancel", *words, number, timeout_s=NUDGE_WITHIN_S)
            except Refusal as refusal:
                self._watch.notice(f"{run.id}: {refusal.problem}")

    def release(self, body: dict[str, Any]) -> None:
        """Forget an ended allocation; only its mark stays."""
        name, token = body["allocation_id"], body["token"]
        with self._ledger.commanding(name) as run:
            owner = self._ledger.fence(run, token)
            seen = self._watch.look(name) if owner is not None else None
            if seen is not None and seen["phase"] in LIVE:
                raise Refusal(
                    CONFLICT, f"{name} is {seen['phase']} and cannot be released.", remedy="Stop it first."
                )
            usage.collect(self._ledger, [name])
            reach("before-release-record")
            self._ledger.mark(name, token)
            reach("after-release-record")
            self._ledger.discard(run)
            self._watch.forget(name)

    # Standing still

    def suspend(self, body: dict[str, Any], verb: str, missing: dict[str, str]) -> None:
        """Suspend or resume a job, where Slurm lets us."""
        if "pause" in missing:
            raise Refusal(UNSUPPORTED, missing["pause"])
        with self._ledger.commanding(body["allocation_id"]) as run:
            self._ledger.fence(run, body["token"])
            self._ledger.known(run.id)
            seen = self._watch.look(run.id)
            if seen is None or seen["phase"] not in ("running", "paused"):
                raise Refusal(CONFLICT, f"{run.id} is {seen['phase'] if seen else 'unknown'}, not running.")
            self._ledger.own(run, token=body["token"])
            if (verb == "suspend") != (seen["phase"] == "paused"):
                self._slurm.ask("scontrol", verb, job_number(run))
