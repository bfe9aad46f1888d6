"""What each of Slurm's job states means. One that is not in this table is an error that names it, never a guess."""

from __future__ import annotations

from typing import NamedTuple

from yunhe.agent.protocol.refusals import INTERNAL, Refusal

GONE = "GONE"
"""Our word for a job that neither the controller nor the accounting knows any more."""


class StateMeaning(NamedTuple):
    """What a state says of a job."""

    over: bool = False
    paused: bool = False
    waits: bool = False
    ending: str | None = None
    """How a job that reached this state ended; None: as its own record says, unknown without one."""


_WAITS = StateMeaning(waits=True)
_LIVES = StateMeaning()
_STOPPED = StateMeaning(paused=True)
_OVER = StateMeaning(over=True)

STATES: dict[str, StateMeaning] = {
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
    "CANCELLED": StateMeaning(over=True, ending="stopped"),
    "TIMEOUT": StateMeaning(over=True, ending="timed-out"),
    "DEADLINE": StateMeaning(over=True, ending="timed-out"),
    "OUT_OF_MEMORY": StateMeaning(over=True, ending="out-of-memory"),
    "PREEMPTED": StateMeaning(over=True, ending="preempted"),
}


def meaning_of(state: str) -> StateMeaning:
    """Return what *state* means; refuse one that this version does not know."""
    try:
        return STATES[state]
    except KeyError:
        raise Refusal(
            INTERNAL,
            f"Slurm says a job is {state!r}, a state this version does not know.",
            remedy="Upgrade the platform, or report the state and Slurm's version.",
        ) from None
