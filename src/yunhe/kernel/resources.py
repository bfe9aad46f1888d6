"""Resources: a vector of what work asks for or a machine has, in integers."""

import msgspec


class Accelerators(msgspec.Struct, frozen=True, omit_defaults=True):
    """Accelerators of one kind; ``milli`` lets one be shared: 500 is half of one."""

    kind: str
    milli: int
    memory_mib: int = 0
    """Device memory of all of them together."""


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """Cores, memory, disk and accelerators in any ratio."""

    cpu_millis: int = 0
    memory_mib: int = 0
    disk_mib: int = 0
    accelerators: tuple[Accelerators, ...] = ()

    def accelerator_milli(self, kind: str) -> int:
        """Return how many thousandths of accelerators of *kind* there are."""
        return sum(a.milli for a in self.accelerators if a.kind == kind)

    def accelerator_memory_mib(self, kind: str) -> int:
        """Return how much device memory the accelerators of *kind* have."""
        return sum(a.memory_mib for a in self.accelerators if a.kind == kind)

    def plus(self, other: "Resources") -> "Resources":
        """Return the sum, dimension by dimension."""
        return Resources(
            cpu_millis=self.cpu_millis + other.cpu_millis,
            memory_mib=self.memory_mib + other.memory_mib,
            disk_mib=self.disk_mib + other.disk_mib,
            accelerators=tuple(
                Accelerators(
                    kind,
                    self.accelerator_milli(kind) + other.accelerator_milli(kind),
                    self.accelerator_memory_mib(kind) + other.accelerator_memory_mib(kind),
                )
                for kind in sorted({a.kind for a in (*self.accelerators, *other.accelerators)})
            ),
        )

    def shortfall(self, ask: "Resources") -> "Resources":
        """Return what *ask* needs beyond this amount; all zero when it fits."""
        short = (
            Accelerators(
                kind,
                max(0, ask.accelerator_milli(kind) - self.accelerator_milli(kind)),
                max(0, ask.accelerator_memory_mib(kind) - self.accelerator_memory_mib(kind)),
            )
            for kind in sorted({a.kind for a in ask.accelerators})
        )
        return Resources(
            cpu_millis=max(0, ask.cpu_millis - self.cpu_millis),
            memory_mib=max(0, ask.memory_mib - self.memory_mib),
            disk_mib=max(0, ask.disk_mib - self.disk_mib),
            accelerators=tuple(a for a in short if a.milli or a.memory_mib),
        )

    def covers(self, ask: "Resources") -> bool:
        """Return whether every dimension of *ask* fits."""
        return self.shortfall(ask) == Resources()
