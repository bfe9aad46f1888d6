"""What would policy X have done: one workload under several policies, side by side."""

import math
import time
from collections.abc import Sequence

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.scheduling.decision.model import Policy
from yunhe.scheduling.perception.snapshot import Snapshot
from yunhe.simulator.engine import Progress, SimulationEngine
from yunhe.simulator.model import PROMPT, Failure, SimulatedPlatform, SimulationReport, Workload


def simulate(
    workload: Workload,
    snapshot: Snapshot,
    policy: Policy | None,
    *,
    platform: SimulatedPlatform = PROMPT,
    failures: Sequence[Failure] = (),
    progress: Progress | None = None,
) -> SimulationReport:
    """Return what comes of *workload* in *snapshot* under *policy*; the same arguments give the same outcome."""
    began = time.perf_counter()
    engine = SimulationEngine(
        workload, snapshot, policy, platform=platform, failures=failures, progress=progress
    )
    engine.run()
    return msgspec.structs.replace(engine.report(), simulated_in_s=time.perf_counter() - began)


def failure_of(text: str, snapshot: Snapshot) -> Failure:
    """Read ``pool@at+for``: which pool fails, when, and for how many seconds."""
    name, _, when = text.partition("@")
    at, _, lasts = when.partition("+")
    pools = {pool.name: pool.id for pool in snapshot.pools}
    try:
        failure = Failure(pool_id=pools[name], at=float(at), lasts_s=float(lasts))
    except (KeyError, ValueError):
        failure = None
    if failure is None or not (0 <= failure.at < math.inf and failure.lasts_s > 0):
        problem = "names no pool of this world" if name not in pools else "needs a time and a length above 0"
        raise InvalidInputError(
            f"A failure cannot be read: {text}.",
            remedy="Write it like pool-000@600+300: pool, seconds after the start, and for how long.",
            fields=(FieldProblem("fail", problem, text),),
        )
    return failure
