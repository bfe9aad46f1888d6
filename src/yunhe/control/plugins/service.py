"""Plugins: registered, listed, started by the platform, upgraded and removed while it runs."""

import dataclasses
import hmac
import os
import secrets
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread

from yunhe.control.plugins import store
from yunhe.control.plugins.confine import FIRST_UID
from yunhe.control.plugins.folders import whole_path
from yunhe.control.plugins.kinds import KnownKinds
from yunhe.control.plugins.model import (
    AllowedFolder,
    Check,
    Heartbeat,
    InstanceState,
    Plugin,
    PluginInstance,
    PluginProcess,
    PluginState,
    Registration,
)
from yunhe.control.plugins.registry import version_order
from yunhe.control.plugins.store import Process
from yunhe.control.plugins.supervisor import Supervisor
from yunhe.infrastructure.contract.manifest import Manifest, read_manifest
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import ConflictError, FieldProblem, InvalidInputError, NotFoundError
from yunhe.storage import audit
from yunhe.storage.database import Connection, Database, T
from yunhe.storage.vault import Vault

KEY_MARK = "yp_"
"""What the key of a process that the platform started begins with; it is good for registering that one alone."""
REGISTER_WITHIN_S = 30.0
LOOK_AGAIN_S = 0.1
RESTARTS_UNTIL_HOPELESS = 2
PoolsByKind = Callable[[], Awaitable[dict[str, list[str]]]]
"""Returns the names of the pools of each kind."""


class PluginService:
    """Implements ``Plugins``."""

    def __init__(
        self,
        database: Database,
        vault: Vault,
        clock: Clock,
        kinds: KnownKinds,
        supervisor: Supervisor,
        pools_by_kind: PoolsByKind,
    ) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock
        self._kinds = kinds
        self._registry = kinds.registry
        self._supervisor = supervisor
        self._pools_by_kind = pools_by_kind

    async def plugins(self) -> tuple[Plugin, ...]:
        """Return every plugin, by name."""
        await self._registry.refresh()
        pools, processes = await self._pools_by_kind(), await self._database.read(store.read_processes)
        manifests = {
            **{process.plugin: process.manifest for process in processes},
            **self._kinds.manifests(),
        }
        return tuple(
            self._plugin(
                manifest, tuple(pools.get(name, ())), [one for one in processes if one.plugin == name]
            )
            for name, manifest in sorted(manifests.items())
        )

    async def plugin(self, name: str) -> Plugin:
        """Return one plugin."""
        found = [plugin for plugin in await self.plugins() if plugin.name == name]
        if not found:
            raise NotFoundError(f"There is no plugin {name}.", remedy="List them: yunhe plugin ls.")
        return found[0]

    def _plugin(self, manifest: Manifest, pools: tuple[str, ...], processes: list[Process]) -> Plugin:
        name = manifest.name
        state, reason = self._state(name, processes)
        return Plugin(
            name=name,
            version=manifest.version,
            vendor=manifest.vendor,
            summary=manifest.summary,
            state=state,
            reason=reason,
            contract=manifest.contract,
            in_process=self._kinds.is_in_process(name),
            target=manifest.target,
            options=manifest.options,
            admin_options=manifest.admin_options,
            powers=manifest.powers,
            missing=manifest.missing,
            limits=manifest.limits,
            fields=manifest.fields,
            instances=self._registry.shown(name),
            processes=tuple(_shown(process) for process in processes),
            pools=pools,
        )

    def _state(self, name: str, processes: list[Process]) -> tuple[PluginState, str]:
        if self._kinds.is_in_process(name) or self._registry.active(name) is not None:
            return PluginState.ACTIVE, ""
        starting = [one for one in processes if one.leaving_since is None]
        if starting and name not in self._registry.names():
            return PluginState.STARTING, starting[-1].reason
        return PluginState.OFFLINE, self._kinds.silence(name).problem

    async def register(self, name: str, instance: str, registration: Registration) -> Heartbeat:
        """Take an instance of a plugin in, or note that it is still there."""
        return await self._registry.register(name, instance, registration)

    async def dismiss(self, name: str, instance: str) -> None:
        """Forget an instance that leaves."""
        await self._registry.goodbye(name, instance)

    async def folders(self) -> tuple[AllowedFolder, ...]:
        """Return the folders that plugins may be started from."""
        return tuple(await self._database.read(store.read_folders))

    async def allow(self, directory: str) -> AllowedFolder:
        """Let plugins be started from a folder of this machine and those below it."""
        folder = await anyio.to_thread.run_sync(whole_path, directory)
        by, now = audit.actor(), self._clock()
        allowed = AllowedFolder(directory=str(folder), allowed_at=now, allowed_by=by.user if by else "")
        await audit.change(
            self._database, lambda c: store.allow_folder(c, allowed), now, "plugin allow", allowed.directory
        )
        return allowed

    async def disallow(self, directory: str) -> None:
        """Let no plugin be started from a folder any more; those that run go on until they end."""
        await audit.change(
            self._database,
            lambda c: store.disallow_folder(c, directory),
            self._clock(),
            "plugin disallow",
            directory,
        )

    async def host(self, directory: str, *, name: str = "") -> AsyncIterator[Check]:
        """Start the plugin in a folder of this machine and wait until it is called; an older one makes way for it."""
        await self._supervisor.require_allowed(directory)
        manifest = await anyio.to_thread.run_sync(self._read_folder, directory)
        if name and (await self.plugin(name)).name != manifest.name:
            raise InvalidInputError(
                f"The folder holds {manifest.name}, not {name}.",
                remedy="Name the folder of its next version.",
                fields=(FieldProblem("directory", f"is not of {name}", directory),),
            )
        known = await self._database.read(
            lambda connection: store.read_processes(connection, plugin=manifest.name)
        )
        self._refuse_older(manifest)
        same = [
            one
            for one in known
            if (one.directory, one.manifest, one.leaving_since) == (directory, manifest, None)
        ]
        yield Check(step="manifest read", ok=True, detail=f"{manifest.name} {manifest.version}")
        process = same[-1] if same else await self._intend(manifest, directory)
        self._supervisor.wake()
        active = False
        try:
            async for check in self._until_active(process):
                active = check.ok and check.step == "called"
                yield check
        finally:
            if not same:
                with anyio.CancelScope(shield=True):
                    await self._change(audit.nothing, process, "done" if active else "failed")
                    if not active:
                        await self._let_go([process])

    def _read_folder(self, directory: str) -> Manifest:
        folder = Path(directory)
        manifest = read_manifest(folder / "plugin.toml")
        self._registry.checked_manifest(tomllib.loads((folder / "plugin.toml").read_text()), directory)
        if not manifest.command:
            raise InvalidInputError(
                f"{manifest.name} says nothing of how to start it.",
                remedy="Give command in its plugin.toml.",
                fields=(FieldProblem("manifest.command", "is empty"),),
            )
        return manifest

    def _refuse_older(self, manifest: Manifest) -> None:
        active = self._registry.active(manifest.name)
        if active is not None and version_order(active.manifest.version) > version_order(manifest.version):
            raise ConflictError(
                f"{manifest.name} {active.manifest.version} runs already, and is newer than {manifest.version}.",
                remedy=f"Remove it first: yunhe plugin rm {manifest.name} --force.",
            )

    async def _intend(self, manifest: Manifest, directory: str) -> Process:
        """Write a process down before it is started."""
        instance = f"{manifest.name}-{secrets.token_hex(6)}"
        process = Process(
            instance=instance,
            plugin=manifest.name,
            directory=directory,
            manifest=manifest,
            host=self._supervisor.host,
            sealed_key=self._vault.seal(
                f"{KEY_MARK}{instance}_{secrets.token_urlsafe(32)}", *store.key_place(instance)
            ),
            added_at=self._clock(),
        )

        def write(connection: Connection) -> Process:
            uid = store.free_uid(connection, manifest.name, FIRST_UID) if os.geteuid() == 0 else None
            own = dataclasses.replace(process, uid=uid)
            store.write_process(connection, own)
            return own

        return await self._change(write, process, "begun")

    async def _change(self, work: Callable[[Connection], T], process: Process, outcome: str) -> T:
        """Make a change and write down what has become of the adding of a plugin, or neither."""
        return await audit.change(
            self._database,
            work,
            self._clock(),
            "plugin add",
            process.plugin,
            outcome=outcome,
            detail=process.directory,
        )

    async def _until_active(self, process: Process) -> AsyncIterator[Check]:
        """Yield what becomes of a process: started, registered, called."""
        began, steps = anyio.current_time(), ["started", "registered", "called"]
        while anyio.current_time() - began < REGISTER_WITHIN_S:
            now = await self._process(process.instance)
            heard = [one for one in self._registry.shown(process.plugin) if one.id == process.instance]
            reached = {
                "started": now is not None and now.pid is not None,
                "registered": bool(heard),
                "called": now is not None and await self._stays(now, heard),
            }
            while steps and reached[steps[0]]:
                yield Check(step=steps.pop(0), ok=True, seconds=anyio.current_time() - began)
            if not steps:
                return
            if now is None or now.restarts > RESTARTS_UNTIL_HOPELESS:
                break
            await anyio.sleep(LOOK_AGAIN_S)
            await self._registry.refresh()
        yield await self._why_not(process, steps[0])

    async def _stays(self, process: Process, heard: list[PluginInstance]) -> bool:
        """Return whether it is called and there to stay: this very process, not one that was ended before it."""
        active = any(
            one.state is InstanceState.ACTIVE and one.heartbeat_at > process.not_before for one in heard
        )
        return active and not process.reason and await self._supervisor.is_within_memory(process)

    async def _why_not(self, process: Process, step: str) -> Check:
        now = await self._process(process.instance)
        reason = now.reason if now is not None and now.reason else f"not within {REGISTER_WITHIN_S:.0f} s"
        said = self._supervisor.output_of(process.instance)
        return Check(
            step=step,
            ok=False,
            detail=f"{reason}; it said: {said}" if said else reason,
            remedy=f"Run it by hand in {process.directory}: {' '.join(process.manifest.command)}",
        )

    async def _process(self, instance: str) -> Process | None:
        found = await self._database.read(store.read_processes)
        return next((one for one in found if one.instance == instance), None)

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Call a plugin no more, and end what the platform started of it."""
        plugin = await self.plugin(name)
        if plugin.in_process:
            raise ConflictError(
                f"{name} is part of the platform and stays.", remedy="Remove its pools: yunhe pool rm POOL."
            )
        if plugin.pools and not force:
            raise ConflictError(
                f"There are pools of kind {name}: {', '.join(plugin.pools[:5])}.",
                remedy="Remove them first (yunhe pool rm), or remove the plugin with --force: they go offline.",
            )
        await self._registry.dismiss(name, "forced" if force else "")
        await self._let_go(
            await self._database.read(lambda connection: store.read_processes(connection, plugin=name))
        )

    async def _let_go(self, processes: list[Process]) -> None:
        """Let processes be ended now, by the server of their machine."""

        def write(connection: Connection) -> None:
            for process in processes:
                store.update_process(connection, process.instance, leaving_since=0.0)

        await self._database.write(write)
        self._supervisor.wake()

    async def plugin_of_key(self, key_text: str) -> str | None:
        """Return which plugin a key of ours may register; None for any other text."""
        if not key_text.startswith(KEY_MARK):
            return None
        for process in await self._database.read(store.read_processes):
            if key_text.startswith(f"{KEY_MARK}{process.instance}_") and hmac.compare_digest(
                self._vault.open(process.sealed_key, *store.key_place(process.instance)), key_text
            ):
                return process.plugin
        return None


def _shown(process: Process) -> PluginProcess:
    return PluginProcess(
        instance=process.instance,
        version=process.manifest.version,
        directory=process.directory,
        host=process.host,
        pid=process.pid,
        restarts=process.restarts,
        leaving=process.leaving_since is not None,
        reason=process.reason,
        uid=process.uid,
    )
