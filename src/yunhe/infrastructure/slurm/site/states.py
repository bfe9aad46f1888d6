"""What each of Slurm's job states means. One that is not in this table is an error that names it, never a guess."""

from __future__ import annotations

from typing import NamedTuple

from yunhe.agent.protocol.refusals import INTERNAL, Refusal

GONE = "GONE"
"""Our word for a job that neither the controller nor the accounting knows any more."""


class Meaning(NamedTuple):
    """What a state says of a job."""

    over: bool = False
    paused: bool = False
    waits: bool = False
    ending: str | None = None
    """How a job that reached this state ended; None: as its own record says, unknown without one."""


_WAITS = Meaning(waits=True)
_LIVES = Meaning()
_STOPPED = Meaning(paused=True)
_OVER = Meaning(over=True)

STATES: dict[str, Meaning] = {
    # waiting
    "PENDING": _WAITS,
    "CONFIGURING": _WAITS,
    "POWER_UP_NODE": _WAITS,
    "REQUEUED": _WAITS,
    "REQUEUE_FED": _WAITS,
    "REQUEUE_HOLD": _WAITS,
    "RESV_DEL_HOLD": _WAITS,
    "SPECIAL_EXIT": _WAITS,
    "EXPEDITING": _WAITS,
    # on a node
    "RUNNING": _LIVES,
    "RESIZING": _LIVES,
    "SIGNALING": _LIVES,
    "COMPLETING": _LIVES,
    "STAGE_OUT": _LIVES,
    "UPDATE_DB": _LIVES,
    "SUSPENDED": _STOPPED,
    "STOPPED": _STOPPED,
    # over
    "COMPLETED": _OVER,
    "FAILED": _OVER,
    "NODE_FAIL": _OVER,
    "BOOT_FAIL": _OVER,
    "LAUNCH_FAILED": _OVER,
    "RECONFIG_FAIL": _OVER,
    "REVOKED": _OVER,
    GONE: _OVER,
    "CANCELLED": Meaning(over=True, ending="stopped"),
    "TIMEOUT": Meaning(over=True, ending="timed-out"),
    "DEADLINE": Meaning(over=True, ending="timed-out"),
    "OUT_OF_MEMORY": Meaning(over=True, ending="out-of-memory"),
    "PREEMPTED": Meaning(over=True, ending="preempted"),
}


def meaning_of(state: str) -> Meaning:
    """Return what *state* means; refuse one that this version does not know."""
    try:
        return STATES[state]
    except KeyError:
        raise Refusal(
            INTERNAL,
            f"Slurm says a job is {state!r}, a state this version does not know.",
            remedy="Upgrade the platform, or report the state and Slurm's version.",
        ) from None
