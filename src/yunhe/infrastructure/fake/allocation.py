"""One allocation of a fake pool: its process, its clock, its end."""

from dataclasses import dataclass, field

from yunhe.infrastructure.contract.model import Ending, LaunchOrder, Meters, Observed, Phase, UsageMinute
from yunhe.infrastructure.fake.accounting import UsageCounters
from yunhe.infrastructure.fake.directory import FakeDirectory
from yunhe.infrastructure.fake.log import Log
from yunhe.infrastructure.fake.script import (
    Process,
    ScriptCommand,
    Sleep,
    World,
    handler_of,
    parse,
    run,
    steps_of,
)
from yunhe.kernel.errors import ConflictError
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

TERMINATED = 143
KILLED = 137
LIVE = frozenset({Phase.RUNNING, Phase.PAUSED})


@dataclass(slots=True, eq=False)
class FakeAllocation:
    """What the pool holds of one allocation; every change is made through a verb below."""

    id: AllocationId
    token: int
    phase: Phase = Phase.PREPARING
    directory: FakeDirectory = field(default_factory=FakeDirectory)
    order: LaunchOrder | None = None
    resources: Resources = field(default_factory=Resources)
    cores: tuple[int, ...] = ()
    wake_at: float | None = None
    """When its process goes on; None while it does not run."""
    ending: Ending | None = None
    exit_code: int | None = None
    detail: str = ""
    _log: Log = field(default_factory=lambda: Log(0))
    _account: UsageCounters | None = None
    _steps: list[tuple[str, tuple[ScriptCommand, ...]]] = field(default_factory=list)
    _process: Process | None = None
    _world: World | None = None
    _started_at: float | None = None
    _ended_at: float | None = None
    _asleep_s: float = 0.0
    _asked: Ending | None = None
    """As what it ends once its handler of the polite signal is through."""

    @property
    def live(self) -> bool:
        """Whether it has processes."""
        return self.phase in LIVE

    @property
    def world(self) -> World:
        """What its processes can touch."""
        if self._world is None:
            raise ConflictError(f"{self.id} does not run.", remedy="Wait until it does.")
        return self._world

    @property
    def log(self) -> Log:
        """Its output."""
        return self._log

    def claim(self, order: LaunchOrder) -> None:
        """Take the order; whether it ran cannot be said until ``start``."""
        self._steps = [(step.name, parse(step.script)) for step in steps_of(order)]
        self.order = order
        self.resources = order.resources
        self.phase = Phase.UNKNOWN
        self.detail = "claimed; the engine ended before it could start it"
        self._log = Log(order.log_limit_bytes)

    def start(self, at: float, minutes: list[UsageMinute], node_cores: int) -> None:
        """Begin the first step."""
        order = self._claimed()
        self.phase, self.detail, self._started_at = Phase.RUNNING, "", at
        self._account = UsageCounters(self.id, at, minutes)
        self._world = World(
            envs={**order.envs, **order.secrets, "YUNHE_GRACE_S": f"{order.grace_s:g}"},
            directory=self.directory,
            write=self._log.write,
            cores=lambda: len(self.cores) or node_cores,
        )
        self.advance(at)

    def advance(self, at: float) -> None:
        """Go on until the process sleeps or everything has ended."""
        while self.live:
            if not self._steps:
                self.end(at, Ending.DONE, 0)
                return
            self._process = self._process or run(self._steps[0][1], self.world)
            try:
                wanted = next(self._process)  # a Read sees its empty standard input at once
            except StopIteration as ended:
                self._step_ended(at, ended.value)
                continue
            if self._over_disk_limit():
                self.end(at, Ending.DISK_FULL, KILLED)
            elif isinstance(wanted, Sleep):
                self.wake_at = at + wanted.seconds
                return

    def pause(self, at: float) -> None:
        """Freeze it where it stands."""
        self.accrue(at)
        self._asleep_s = max(0.0, (self.wake_at or at) - at)
        self.phase, self.wake_at = Phase.PAUSED, None

    def resume(self, at: float) -> None:
        """Let it go on."""
        self.accrue(at)
        self.phase, self.wake_at = Phase.RUNNING, at + self._asleep_s

    def ask(self, at: float, ending: Ending) -> None:
        """Send the polite signal: it goes on for as long as it ignores or handles that."""
        world = self.world
        if world.ignores_term or self._asked is not None:
            self.detail = "asked to stop"
        elif world.on_term:
            self.accrue(at)
            self.phase, self.wake_at, self._asked = Phase.RUNNING, None, ending
            self._process = run(handler_of(world.on_term), world)
            self.advance(at)
        else:
            self.end(at, ending, TERMINATED)

    def end(self, at: float, ending: Ending, exit_code: int | None) -> None:
        """Let nothing of it run any more."""
        self.accrue(at)
        if self._account is not None:
            self._account.finish()
        self.phase, self.ending, self.exit_code, self._ended_at = Phase.EXITED, ending, exit_code, at
        self.wake_at = self._process = None

    def lose(self, at: float, detail: str) -> None:
        """Its node is gone, and nobody can say how it ended."""
        self.end(at, Ending.DONE, None)
        self.phase, self.ending, self.detail = Phase.UNKNOWN, None, detail

    def accrue(self, at: float) -> None:
        """Count what it has used up to *at*."""
        if self._account is not None and self.live:
            self._account.accrue(at, self.resources, working=self.phase is Phase.RUNNING)

    def observed(self) -> Observed:
        """Return what an observer sees."""
        written_bytes = self.directory.written_bytes + self._log.total_bytes
        return Observed(
            allocation_id=self.id,
            phase=self.phase,
            token=self.token,
            node_id=self.order.node_id if self.order else None,
            step=self._steps[0][0] if self._steps else "",
            exit_code=self.exit_code,
            ending=self.ending,
            started_at=self._started_at,
            ended_at=self._ended_at,
            detail=self.detail,
            resources=self.resources if self.order else None,
            meters=self._account.meters(written_bytes) if self._account else Meters(),
            log_bytes=self._log.total_bytes,
        )

    def _step_ended(self, at: float, exit_code: int) -> None:
        self._process = None
        if self._asked is not None:
            self.end(at, self._asked, exit_code)
        elif exit_code or len(self._steps) == 1:
            self.end(at, Ending.DONE, exit_code)
        else:
            del self._steps[0]

    def _over_disk_limit(self) -> bool:
        limit = self._claimed().disk_limit_bytes
        return limit is not None and self.directory.size_bytes > limit

    def _claimed(self) -> LaunchOrder:
        if self.order is None:
            raise ConflictError(f"{self.id} has not been launched.", remedy="Launch it first.")
        return self.order
