"""What came of the commands: each job's own records, and Slurm's word where a job could leave none."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from typing import Any, Callable

from yunhe.agent.protocol.refusals import Refusal
from yunhe.agent.runs.changes import ChangeLog
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.logs import end_of_log
from yunhe.agent.runtimes.programs import COULD_NOT_START
from yunhe.infrastructure.slurm.site import answers
from yunhe.infrastructure.slurm.site.ledger import Ledger, job_number
from yunhe.infrastructure.slurm.site.programs import Slurm
from yunhe.infrastructure.slurm.site.states import GONE, meaning_of

ASK_EVERY_S = 1.0
ASK_AGAIN_AFTER_FAILURE_S = 5.0
SETTLE_S = 2.0
"""How long after Slurm says a job is over its own last record may take to be seen through a network mount."""
ABANDON_S = 120.0
"""How long a claim that no job is known for waits to be launched again before it is given up."""
FORCE_AFTER_S = 20.0
_SIGNALLED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
"""The exit codes of what Slurm may have ended; the steps can be gone before their overseer hears of it."""
_OVER_MEMORY = re.compile(r"slurmstepd.*: error: (Exceeded job memory limit|Detected \d+ oom.kill event)")
_STANDING = ("phase", "token", "node_id", "step", "exit_code", "ending", "detail")


class SlurmQueue:
    """Our jobs as squeue lists them, asked for no more often than need be."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._jobs: dict[str, list[answers.SlurmJob]] = {}
        self.taken_at = 0.0
        self._not_before = 0.0
        self.trouble = ""

    def due(self) -> bool:
        """Return whether it is time to ask."""
        return time.monotonic() >= self._not_before

    def expire(self) -> None:
        """Let the next look ask, whatever was heard before."""
        self._not_before = 0.0

    def ask(self) -> None:
        """Ask squeue; a controller that does not answer leaves what was heard before, and a notice."""
        began, at = time.monotonic(), time.time()
        self._not_before = began + ASK_EVERY_S
        asked = ["--noheader", "--me", "--states=all", f"--format={answers.QUEUE_FORMAT}"]
        try:
            text = self._slurm.ask("squeue", *asked)
        except Refusal as refusal:
            self.trouble = f"{refusal.problem} States are those the jobs themselves have recorded."
            self._not_before = time.monotonic() + ASK_AGAIN_AFTER_FAILURE_S
            return
        jobs: dict[str, list[answers.SlurmJob]] = {}
        for job in answers.jobs(text):
            jobs.setdefault(job.allocation_id, []).append(job)
        self._jobs, self.taken_at, self.trouble = jobs, at, ""
        # A busy controller is asked less often: never more than a tenth of the time.
        self._not_before = max(self._not_before, began + 10 * (time.monotonic() - began))

    def job_of(self, name: str, number: str) -> answers.SlurmJob | None:
        """Return the job of an allocation: the one that began, else one that is not over, else the last."""
        jobs = self._jobs.get(name, [])
        lives = [job for job in jobs if not meaning_of(job.state).over]
        chosen = [job for job in jobs if job.number == number] or lives or jobs
        return chosen[-1] if chosen else None


class SlurmWatch:
    """Looks at every allocation; what has ended is remembered, the rest is read anew each time."""

    def __init__(self, ledger: Ledger, slurm: Slurm, *, accounting: Callable[[], bool]) -> None:
        self.queue = SlurmQueue(slurm)
        self._ledger = ledger
        self._slurm = slurm
        self._accounting = accounting
        self._looking = threading.RLock()
        self._ended: dict[str, dict[str, Any]] = {}
        self._over_since: dict[str, float] = {}
        self._forced: dict[str, float] = {}
        self._notices: list[str] = []
        self._standing: dict[str, tuple[Any, ...]] = {}
        # Versions of an earlier helper must not be met again: an observer would wait for what has already happened.
        self._changes = ChangeLog(time.time_ns() // 1_000_000)

    def notice(self, text: str) -> None:
        """Tell the operator, once."""
        if text not in self._notices:
            self._notices = [*self._notices[-19:], text]

    def forget(self, name: str) -> None:
        """Remember nothing of an allocation that was released."""
        with self._looking:
            for kept in (self._ended, self._over_since, self._forced):
                kept.pop(name, None)

    def look_all(self, beyond: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return what changed after *beyond*, or every allocation still known, and what else is told with it."""
        with self._looking:
            seen = {body["allocation_id"]: body for body in map(self.look, self._ledger.names()) if body}
            standing = {name: tuple(body.get(key) for key in _STANDING) for name, body in seen.items()}
            before, self._standing = self._standing, standing
            for name, stands in standing.items():
                if stands != before.get(name):
                    self._changes.note(name)
            for name in before.keys() - standing.keys():
                self._changes.forget(name)
            since = self._changes.after(beyond)
            names, gone = (list(seen), []) if since is None else since
            now = [text for text in (self.queue.trouble, _low_on_disk(self._ledger.root)) if text]
            told = {"since": -1 if since is None else beyond, "gone": gone, "notices": [*self._notices, *now]}
            return [seen[name] for name in names], {"version": self._changes.version, **told}

    def count(self) -> int:
        """Return how many allocations were known at the last look."""
        return len(self._standing)

    def waits_for_slurm(self) -> bool:
        """Return whether there is anything that Slurm could tell of."""
        return any(name not in self._ended for name in self._ledger.names())

    def look(self, name: str) -> dict[str, Any] | None:
        """Return what is known of one allocation; None where nothing was promised."""
        with self._looking:
            run = self._ledger.run(name)
            owner = run.record("owner")
            if owner is None:
                return None
            if name in self._ended:
                return {**self._ended[name], "token": owner["token"]}
            claim = run.record("claim")
            body: dict[str, Any] = {"allocation_id": name, "token": owner["token"], "log_bytes": 0}
            if claim is None:
                stopped = {"phase": "exited", "ending": "stopped"}
                return {**body, **(stopped if owner.get("stopped") else {"phase": "preparing"})}
            body.update(self._read(run, claim))
            if body["phase"] in ("exited", "unknown"):
                self._ended[name] = body
            return body

    # One allocation

    def _read(self, run: Run, claim: dict[str, Any]) -> dict[str, Any]:
        place = run.record("place") or {}
        start = run.record("start") or {}
        body: dict[str, Any] = {
            "node_id": place.get("node"),
            "resources": claim["resources"],
            "started_at": start.get("started_at"),
            "step": _text(run.at("step")),
            "meters": run.record("meters") or {},
        }
        end, verdict = run.record("end"), run.record("verdict")
        if end is None or (verdict is None and _slurm_did_it(end)):
            verdict = verdict or self._judge(run, claim, ended=end is not None)
        if end is not None and (verdict is not None or not _slurm_did_it(end)):
            return {**body, **_told_by_itself(end, verdict)}
        if verdict is not None:
            return {**body, **_told_by_slurm(run, verdict)}
        self._force(run)
        began = "pid" in start and bool(body["step"])
        return {**body, **self._alive(run, began=began), "log_bytes": end_of_log(run.log)}

    def _alive(self, run: Run, *, began: bool) -> dict[str, Any]:
        job = self.queue.job_of(run.id, job_number(run))
        if not began:
            words = f"Slurm job {job.number} is {job.state}" if job else "handed to Slurm"
            reason = f" ({job.reason})" if job and job.reason else ""
            return {"phase": "starting", "detail": words + reason}
        paused = job is not None and meaning_of(job.state).paused
        return {"phase": "paused" if paused else "running", "detail": ""}

    def _judge(self, run: Run, claim: dict[str, Any], *, ended: bool) -> dict[str, Any] | None:
        """Write down Slurm's last word on a job that is over for it, and return that; None while it is not."""
        job = self.queue.job_of(run.id, job_number(run))
        state = job.state if job else self._state_of_missing(run, claim)
        if state is None or not meaning_of(state).over:
            self._over_since.pop(run.id, None)
            return None
        since = self._over_since.setdefault(run.id, time.monotonic())
        if not ended and time.monotonic() - since < SETTLE_S:
            return None
        run.create_record("start", {"abandoned": True})  # whatever else is still queued for it must not begin
        number = job.number if job else job_number(run)
        if state == "FAILED" and _OVER_MEMORY.search(_text(run.at("slurm.out"))):
            state = "OUT_OF_MEMORY"  # where limits are kept by polling, Slurm says so in words alone
        run.create_record("verdict", {"state": state, "job": number, "at": time.time()})
        return run.record("verdict")

    def _state_of_missing(self, run: Run, claim: dict[str, Any]) -> str | None:
        """Return the state of a job that squeue does not list; None while that means nothing."""
        submitted = run.record("job")
        if submitted is None:
            return GONE if time.time() - claim["claimed_at"] > ABANDON_S and self.queue.taken_at else None
        if self.queue.taken_at <= submitted["at"]:
            return None
        if self._accounting():
            try:
                asked = ["-nPX", f"--jobs={submitted['job']}", "--format=State"]
                words = self._slurm.ask("sacct", *asked).split()
            except Refusal:
                return None
            return words[0].rstrip("+") if words else GONE
        return GONE

    def _force(self, run: Run) -> None:
        """Have Slurm kill a job that should long have ended by our own stop."""
        wish = run.record("stop")
        now = time.time()
        if wish is None or now < wish["at"] + wish["grace_s"] + FORCE_AFTER_S:
            return
        if now - self._forced.get(run.id, 0.0) > FORCE_AFTER_S:
            self._forced[run.id] = now
            try:
                self._slurm.ask("scancel", job_number(run), timeout_s=5.0)
            except Refusal as refusal:
                self.notice(f"{run.id}: {refusal.problem}")


def _slurm_did_it(end: dict[str, Any]) -> bool:
    """Return whether the job's own record leaves open why it ended: Slurm signalled it, or something killed it."""
    return end.get("interrupted", False) or (end["ending"] == "done" and end["exit_code"] in _SIGNALLED)


def _told_by_itself(end: dict[str, Any], verdict: dict[str, Any] | None) -> dict[str, Any]:
    body = {key: end[key] for key in ("exit_code", "ending", "detail", "ended_at", "log_bytes", "meters")}
    body.update(phase="exited", **({"step": end["step"]} if end["step"] else {}))
    ending = meaning_of(verdict["state"]).ending if verdict is not None else None
    if verdict is not None and ending is not None:
        body.update(ending=ending, detail=f"Slurm job {verdict['job']}: {verdict['state']}")
    return body


def _told_by_slurm(run: Run, verdict: dict[str, Any]) -> dict[str, Any]:
    """Return what can be said of a job that left no record of its end."""
    state = verdict["state"]
    body: dict[str, Any] = {
        "log_bytes": end_of_log(run.log),
        "detail": f"Slurm job {verdict['job']}: {state}",
    }
    ending = meaning_of(state).ending
    began = "pid" in (run.record("start") or {})
    if ending is not None:
        return {**body, "phase": "exited", "ending": ending, "ended_at": verdict["at"]}
    if not began and state in ("COMPLETED", "FAILED"):
        said = _text(run.at("slurm.out"))[-400:].strip()
        body["detail"] += f"; nothing of it began: {said or 'the node said nothing'}"
        exited = {"phase": "exited", "ending": "done", "exit_code": COULD_NOT_START}
        return {**body, **exited, "ended_at": verdict["at"]}
    if state == GONE:
        known = "Slurm no longer knows its job" if run.record("job") else "claimed, but never handed to Slurm"
        return {**body, "phase": "unknown", "detail": known}
    return {**body, "phase": "unknown", "detail": f"{body['detail']}, and it left no record of its end"}


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def poll_s(count: int) -> float:
    """Return how long to wait between looks at *count* allocations: the shared file system is not ours alone."""
    return max(0.1, min(2.0, 0.003 * count))


def _low_on_disk(root: str) -> str:
    """Return a notice where the root is nearly full."""
    disk = os.statvfs(root)
    free_mib = disk.f_bavail * disk.f_frsize >> 20
    return f"Less than 256 MiB are free in {root}." if free_mib < 256 else ""
