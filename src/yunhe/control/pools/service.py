"""Pools: register them, keep watch over them, and pass orders to their engines."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec

from yunhe.control.plugins.interface import Kinds
from yunhe.control.pools import store
from yunhe.control.pools.connections import Connections, target_of
from yunhe.control.pools.model import (
    Check,
    ExecRequest,
    ExecSession,
    FactChanges,
    ForwardSession,
    LaunchOrder,
    LogChunk,
    Mount,
    Observation,
    Observed,
    Phase,
    Pool,
    PoolSpec,
    Power,
    UsageMinute,
)
from yunhe.control.pools.spec import check_spec
from yunhe.control.pools.store import About
from yunhe.infrastructure.contract.engine import (
    Engine,
    SupportsExec,
    SupportsFiles,
    SupportsForward,
    SupportsManifests,
    SupportsResize,
)
from yunhe.infrastructure.contract.model import Upload
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import (
    ConflictError,
    FieldProblem,
    PoolNotReachedError,
    PoolUnreachableError,
    UnsupportedError,
    YunheError,
)
from yunhe.kernel.ids import AllocationId, BlobId, PoolId, ProjectId
from yunhe.kernel.resources import Resources
from yunhe.observability.failpoints import failpoint
from yunhe.storage import audit
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import Connection, Database

P = TypeVar("P")
T = TypeVar("T")
ABOUT_EVERY_S = 30.0
"""How often an engine is asked what it is; what it has is asked with every look."""
LET_GO_EVERY_S = 5.0
FILES_HOME_WITHIN_S = 5.0
LOOK_AGAIN_S = 0.2


class PoolService:
    """Implements ``Pools``."""

    def __init__(self, database: Database, blobs: Blobs, clock: Clock, kinds: Kinds) -> None:
        self._database = database
        self._blobs = blobs
        self._clock = clock
        self._kinds = kinds
        self._connections = Connections(kinds)
        self._asked_about: dict[PoolId, float] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hold connections until the block ends."""
        async with self._connections.running():
            yield

    async def add(self, spec: PoolSpec) -> AsyncIterator[Check]:
        """Register a pool and yield each check as it is made."""
        await self._kinds.refresh()
        check_spec(spec, self._kinds.manifests())
        kind = self._kinds.kind(spec.kind)
        pool_id = await self._change(
            lambda c: store.intend(c, spec, self._clock()), "pool add", spec, "begun"
        )
        failpoint("pool-after-intent")
        ok = False
        try:
            async for check in kind.onboard(target_of(spec)):
                ok = check.ok
                yield check
            if ok:
                failpoint("pool-before-seen")
                await self.look(pool_id, spec, closely=True)
                await self._change(audit.nothing, "pool add", spec)
        finally:
            if not ok:
                with anyio.CancelScope(shield=True):
                    await self._change(
                        lambda c: store.delete_unconnected(c, pool_id), "pool add", spec, "failed"
                    )

    async def _change(
        self, work: Callable[[Connection], T], action: str, spec: PoolSpec, outcome: str = "done"
    ) -> T:
        """Make a change to a pool and write its line of the audit log, or neither."""
        what = f"{spec.kind} {spec.target}".strip()
        return await audit.change(
            self._database, work, self._clock(), action, spec.name, outcome=outcome, detail=what
        )

    async def pools(self) -> tuple[Pool, ...]:
        """Return every pool."""
        return await self._database.read(store.read_pools)

    async def pool(self, name_or_id: str) -> Pool:
        """Return one pool."""
        return await self._database.read(lambda connection: store.read_pool(connection, name_or_id))

    async def check(self, name_or_id: str) -> AsyncIterator[Check]:
        """Yield what works and what does not."""
        pool = await self.pool(name_or_id)
        await self._kinds.refresh()
        try:
            kind = self._kinds.kind(pool.spec.kind)
        except PoolUnreachableError as error:
            yield Check(step="plugin answers", ok=False, detail=error.problem, remedy=error.remedy)
            return
        ok = False
        async for check in kind.onboard(target_of(pool.spec)):
            ok = check.ok
            yield check
        if ok:
            await self.look(pool.id, pool.spec, closely=True)

    async def look(self, pool_id: PoolId, spec: PoolSpec, *, closely: bool = False) -> None:
        """Ask the engine what it has, and now and then, or to look *closely*, what it is; note it."""
        engine = await self._connections.engine(pool_id, spec)
        inventory, now = await engine.inventory(), self._clock()
        about = None
        if closely or now - self._asked_about.get(pool_id, 0.0) > ABOUT_EVERY_S:
            about = About(
                await engine.describe(),
                await engine.account(),
                await engine.catalogue(),
                (await engine.observe()).notices,
            )

        def note(connection: Connection) -> bool:
            is_there = store.write_inventory(connection, pool_id, inventory, now)
            if is_there and about is not None:
                store.write_about(connection, pool_id, about)
            return is_there

        if not await self._database.write(note):
            self._let_go(pool_id)  # removed while we looked
        elif about is not None:
            self._asked_about[pool_id] = now

    async def drain(self, name_or_id: str, *, on: bool = True) -> Pool:
        """Take no new work on a pool, or again."""
        pool = await self.pool(name_or_id)
        if pool.drained != on:
            await self._change(
                lambda connection: store.set_drained(connection, pool.id, drained=on),
                "pool drain" if on else "pool resume",
                pool.spec,
            )
        return await self.pool(pool.id)

    async def tell(self, name_or_id: str, changes: FactChanges) -> Pool:
        """Note what an operator says of a pool."""
        pool, now = await self.pool(name_or_id), self._clock()
        await audit.change(
            self._database,
            lambda connection: store.tell(connection, pool.id, changes, now),
            now,
            "pool set",
            pool.spec.name,
            detail=", ".join(sorted({*msgspec.to_builtins(changes)} - {"unset"} | {*changes.unset})),
        )
        return await self.pool(pool.id)

    async def cordon(self, name_or_id: str, node: str, *, on: bool = True) -> Pool:
        """Take no new work on one node of a pool, or again."""
        pool, now = await self.pool(name_or_id), self._clock()
        await audit.change(
            self._database,
            lambda connection: store.cordon(connection, pool, node, on=on, now=now),
            now,
            "node cordon" if on else "node uncordon",
            f"{pool.spec.name}/{node}",
        )
        return await self.pool(pool.id)

    async def remove(self, name_or_id: str, *, force: bool = False) -> None:
        """Forget a pool that has no work left."""
        pool = await self.pool(name_or_id)
        if not force:
            await self._check_empty(pool)
        await audit.change(
            self._database,
            lambda connection: store.delete(connection, pool.id),
            self._clock(),
            "pool remove",
            pool.spec.name,
            detail="forced" if force else "",
        )
        self._let_go(pool.id)

    async def _check_empty(self, pool: Pool) -> None:
        """Refuse if a pool runs jobs of ours, or keeps files of ended ones for longer than it takes to fetch a few."""
        name, until = pool.spec.name, anyio.current_time() + FILES_HOME_WITHIN_S
        while known := await self._known(pool):
            busy = [seen.allocation_id for seen in known if seen.phase is not Phase.EXITED]
            if busy:
                raise ConflictError(
                    f"Pool {name} still runs {len(busy)} of our jobs.",
                    remedy=f"Drain it and wait (yunhe pool drain {name}), or give them up: yunhe pool rm --force {name}.",
                )
            if anyio.current_time() > until:
                raise ConflictError(
                    f"Pool {name} still keeps the logs and files of {len(known)} of our jobs that have ended.",
                    remedy=f"See what they wait for (yunhe ps), or give them up: yunhe pool rm --force {name}.",
                )
            await anyio.sleep(LOOK_AGAIN_S)

    async def _known(self, pool: Pool) -> tuple[Observed, ...]:
        """Return what a pool has of ours; one that cannot say is not removed lightly."""
        try:
            return (await self.observe(pool.id, beyond=-1, wait_s=0)).allocations
        except PoolUnreachableError as error:
            raise PoolUnreachableError(
                f"Pool {pool.spec.name} does not say whether it still runs any of our jobs: {error.problem}",
                remedy=f"Fix it (yunhe pool check {pool.spec.name}), or give up what may run there: yunhe pool rm --force {pool.spec.name}.",
            ) from error

    async def let_go_of_removed(self) -> None:
        """Hang up, again and again, on pools that are no more: another process may have removed them."""
        while True:
            await anyio.sleep(LET_GO_EVERY_S)
            connected = self._connections.pool_ids()
            if connected:
                known = await self._database.read(store.read_pool_ids)
                for pool_id in connected - known:
                    self._let_go(pool_id)

    def _let_go(self, pool_id: PoolId) -> None:
        self._connections.close(pool_id)
        self._asked_about.pop(pool_id, None)

    async def launch(self, pool_id: PoolId, order: LaunchOrder, mounts: tuple[Mount, ...]) -> None:
        """Send what an allocation needs, then begin it."""
        try:
            engine = await self._prepare(pool_id, order, mounts)
        except PoolUnreachableError as error:
            raise PoolNotReachedError(error.problem, remedy=error.remedy) from error
        failpoint("launch-after-files")
        await engine.launch(msgspec.structs.replace(order, node_id=store.engines_own(order.node_id)))

    async def _prepare(self, pool_id: PoolId, order: LaunchOrder, mounts: tuple[Mount, ...]) -> Engine:
        """Send the files of an allocation; return the engine to launch it on."""
        engine = await self._engine(pool_id)
        for mount in mounts:
            upload = Upload(
                allocation_id=order.allocation_id,
                token=order.token,
                project_id=order.project_id,
                path=mount.path,
                digest=await self._blobs.digest(mount.blob_id),
                size_bytes=mount.size_bytes,
                resources=order.resources,
            )
            await _power(engine, SupportsFiles, Power.FILES).put_archive(
                upload, self._blobs.chunks(mount.blob_id)
            )
        return engine

    async def manifests(self, pool_id: PoolId, order: LaunchOrder) -> tuple[dict[str, Any], ...]:
        """Return objects that run *order* when another deployer applies them."""
        engine = await self._engine(pool_id)
        if not isinstance(engine, SupportsManifests):
            name = (await self.pool(pool_id)).spec.name
            raise UnsupportedError(
                f"Nothing can be rendered for pool {name}: its engine takes no manifests.",
                remedy="Plan for a pool whose engine does: yunhe plan --render KIND --pool POOL FILE.",
                fields=(FieldProblem("pool", "takes no manifests", name),),
            )
        return engine.manifests(msgspec.structs.replace(order, node_id=store.engines_own(order.node_id)))

    async def stop(
        self, pool_id: PoolId, allocation_id: AllocationId, token: int, *, grace_s: float = 10.0
    ) -> None:
        """Begin to end an allocation: politely, and by force after *grace_s*."""
        await (await self._engine(pool_id)).stop(allocation_id, token, grace_s=grace_s)

    async def release(self, pool_id: PoolId, allocation_id: AllocationId, token: int) -> None:
        """Let the engine forget an ended allocation."""
        await (await self._engine(pool_id)).release(allocation_id, token)

    async def resize(
        self, pool_id: PoolId, allocation_id: AllocationId, token: int, resources: Resources
    ) -> None:
        """Change the limits of a running allocation in place."""
        engine = await self._engine(pool_id)
        await _power(engine, SupportsResize, Power.RESIZE).resize(allocation_id, token, resources)

    async def observe(self, pool_id: PoolId, *, beyond: int, wait_s: float) -> Observation:
        """Return what the engine knows of every allocation."""
        return await (await self._engine(pool_id)).observe(beyond=beyond, wait_s=wait_s)

    async def usage(self, pool_id: PoolId, *, beyond: int) -> tuple[UsageMinute, ...]:
        """Return the minutes of use after sequence number *beyond*."""
        engine = await self._engine(pool_id)
        return tuple([minute async for minute in engine.usage(beyond=beyond)])

    async def logs(
        self, pool_id: PoolId, allocation_id: AllocationId, *, offset: int, follow: bool
    ) -> AsyncIterator[LogChunk]:
        """Yield an allocation's output from *offset*."""
        engine = await self._engine(pool_id)
        async for chunk in engine.logs(allocation_id, offset=offset, follow=follow):
            yield chunk

    async def collect(
        self, pool_id: PoolId, allocation_id: AllocationId, paths: tuple[str, ...], project_id: ProjectId
    ) -> BlobId:
        """Bring *paths* home as one archive."""
        files = self.files(pool_id, allocation_id, paths)
        return await self._blobs.put(f"outputs/{allocation_id}", files, project_id=project_id)

    async def files(
        self, pool_id: PoolId, allocation_id: AllocationId, paths: tuple[str, ...]
    ) -> AsyncIterator[bytes]:
        """Yield a gzip-compressed tar of *paths*."""
        engine = _power(await self._engine(pool_id), SupportsFiles, Power.FILES)
        async for chunk in engine.get_archive(allocation_id, paths):
            yield chunk

    @asynccontextmanager
    async def exec(
        self, pool_id: PoolId, allocation_id: AllocationId, request: ExecRequest
    ) -> AsyncGenerator[ExecSession]:
        """Run a command beside a running allocation."""
        engine = _power(await self._engine(pool_id), SupportsExec, Power.EXEC)
        async with engine.exec(allocation_id, request) as session:
            yield session

    @asynccontextmanager
    async def forward(
        self, pool_id: PoolId, allocation_id: AllocationId, port: int
    ) -> AsyncGenerator[ForwardSession]:
        """Connect to a port inside a running allocation."""
        engine = await self._engine(pool_id)
        if not isinstance(engine, SupportsForward):
            why = (await engine.describe()).missing.get(Power.FORWARD, "Its engine does not say why.")
            raise UnsupportedError("This pool's engine cannot connect to ports of its jobs.", remedy=why)
        async with engine.forward(allocation_id, port) as session:
            yield session

    async def _engine(self, pool_id: PoolId) -> Engine:
        spec = await self._database.read(lambda connection: store.read_spec(connection, pool_id))
        return await self._connections.engine(pool_id, spec)

    async def mark_silent(self, reasons: dict[str, str]) -> None:
        """Mark the ready pools of these kinds offline, each with its kind's reason."""
        await self._database.write(lambda connection: store.mark_silent(connection, reasons))

    async def note(self, pool_id: PoolId, problem: YunheError) -> None:
        """Note that a pool does not answer, and why."""
        await self._database.write(lambda c: store.mark_offline(c, pool_id, problem.problem))


def _power(engine: Engine, power: type[P], name: Power) -> P:
    if not isinstance(engine, power):
        raise UnsupportedError(
            f"This pool's engine cannot {name}.",
            remedy="See what it can do and why not: yunhe pool show POOL.",
        )
    return engine
