"""What anybody may ask without a key: is it up, what is it made of, how is it called."""

import logging

import anyio
from litestar import Response, Router, get
from litestar.datastructures import State

from yunhe.entrypoints.wire import ModuleRow, ModuleTable, Readiness
from yunhe.runtime.modules import MODULES, start_order
from yunhe.runtime.platform import Platform

logger = logging.getLogger(__name__)

READY_WITHIN_S = 5.0
READY = "ready"
DISK_FULL = "disk full: new jobs are refused"
"""Still ready: it answers reads, and jobs that have begun go on."""


@get("/health")
async def health(state: State) -> Readiness:
    """Say that the process lives; it asks nobody else."""
    return _readiness("stopping" if state.stopping.is_set() else READY)


@get("/ready")
async def ready(state: State) -> Response[Readiness]:
    """Say whether requests can be served now: the store answers and the process is not stopping."""
    found = _readiness("stopping" if state.stopping.is_set() else await _store_state(state.platform))
    return Response(found, status_code=200 if found.ready else 503)


async def _store_state(platform: Platform) -> str:
    try:
        with anyio.fail_after(READY_WITHIN_S):
            await platform.pools.pools()
    except Exception:
        logger.exception("the store does not answer")
        return "store does not answer"
    return DISK_FULL if platform.is_full() else READY


def _readiness(state: str) -> Readiness:
    return Readiness(state in (READY, DISK_FULL), dict.fromkeys(start_order(), state))


@get("/modules")
async def modules() -> ModuleTable:
    """List the sub-modules: which are built, what each needs, which this process hosts."""
    hosted = set(start_order())
    return ModuleTable(
        tuple(
            ModuleRow(
                module=module.name,
                layer=module.layer,
                submodule=sub.name,
                folder=sub.folder,
                built=sub.built,
                needs=sub.needs,
                hosted=sub.name in hosted,
            )
            for module in MODULES
            for sub in module.submodules
        )
    )


router = Router("/", route_handlers=[health, ready, modules], tags=["platform"])
