"""How long a stop lets an allocation live, as its marks in Ray say; run beside the runner once a stop has come.

Ray's stop carries no word but the signal. The platform leaves a mark first, a job that never runs, whose name ends in
the token and the grace in milliseconds; the names of jobs are what is read here. Prints the shortest grace each time
it becomes shorter.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import Any

JOB_KEYS = "_ray_internal_job_info_"
POLL_S = 0.5


def shortest_grace_s(keys: list[bytes], prefix: str) -> float | None:
    """Return the shortest grace that *keys* tell of, in seconds."""
    graces = [key.decode()[len(prefix) :].split(".")[-1] for key in keys]
    return min((int(text) / 1000 for text in graces if text.isdigit()), default=None)


def main(allocation_id: str, address: str) -> None:
    """Print graces until somebody ends this process."""
    client: Any = import_module("ray._raylet").GcsClient(
        address=address
    )  # there on the node only, slow to import
    prefix = f"{JOB_KEYS}{allocation_id}.stop."
    told: float | None = None
    while True:
        keys = client.internal_kv_keys(prefix.encode(), b"job", 5)
        grace_s = shortest_grace_s(keys, prefix)
        if grace_s is not None and (told is None or grace_s < told):
            told = grace_s
            print(grace_s, flush=True)  # noqa: T201 - how it answers
        time.sleep(POLL_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
