"""The registry: which processes of which plugins are there, and which one of each is called.

The table is the truth, for any number of server processes. Each keeps what it read for half a heartbeat, and writes the
heartbeats it heard together, so that hundreds of plugins cost one small transaction a second.
"""

import hashlib
import re
from dataclasses import dataclass

import msgspec

from yunhe.control.plugins import store
from yunhe.control.plugins.model import Heartbeat, InstanceState, PluginInstance, Registration
from yunhe.control.plugins.store import RegisteredInstance
from yunhe.infrastructure.contract.manifest import Manifest, check_manifest
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import ConflictError, FieldProblem, InvalidInputError
from yunhe.storage import audit
from yunhe.storage.database import Database
from yunhe.storage.vault import Vault

HEARTBEAT_S = 2.0
OFFLINE_AFTER_S = 2.25 * HEARTBEAT_S
"""Before the third period is over, so that on a busy machine, too, its pools are marked by then."""
READ_EVERY_S = HEARTBEAT_S / 2
FORGET_AFTER_S = 60.0
"""How long an instance that went silent is shown beside one that answers."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CallAddress:
    """How an instance is called."""

    address: str
    certificate: str
    token: str


class Registry:
    """Knows every instance, and chooses among those of one plugin."""

    def __init__(self, database: Database, vault: Vault, clock: Clock, *, reserved: frozenset[str]) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock
        self._reserved = reserved
        self._began_at = clock()
        self._instances: dict[Key, RegisteredInstance] = {}
        self._heard_at: dict[Key, float] = {}
        self._unwritten: dict[Key, float] = {}
        self._read_at = 0.0

    async def register(self, plugin: str, instance: str, registration: Registration) -> Heartbeat:
        """Take an instance in, or note that it is still there."""
        key, now = (plugin, instance), self._clock()
        await self.refresh()
        known = self._instances.get(key)
        is_new = known is None or known.digest != _digest(registration)
        if is_new:
            fresh = self._admit(key, registration, now)
            await audit.change(
                self._database,
                lambda connection: store.write_instance(connection, fresh, now),
                now,
                "plugin register",
                plugin,
                detail=f"{instance} at {registration.address}",
            )
            self._instances[key] = fresh
        self._heard_at[key] = self._unwritten[key] = now
        chosen = self.active(plugin)
        is_chosen = chosen is not None and chosen.instance == instance
        state = InstanceState.ACTIVE if is_chosen else InstanceState.SUPERSEDED
        return Heartbeat(HEARTBEAT_S, state, is_new)

    def _admit(self, key: Key, registration: Registration, now: float) -> RegisteredInstance:
        plugin, instance = key
        manifest = self.checked_manifest(registration.manifest, f"Plugin {plugin}")
        problems = [
            *(
                []
                if manifest.name == plugin
                else [FieldProblem("manifest.name", f"is not {plugin}", manifest.name)]
            ),
            *([] if _INSTANCE.fullmatch(instance) else [FieldProblem("instance", "is not a name", instance)]),
            *([] if registration.address else [FieldProblem("address", "is empty")]),
            *([] if registration.token else [FieldProblem("token", "is empty")]),
        ]
        if problems:
            raise InvalidInputError(
                f"Plugin {plugin} cannot be registered.", remedy="Correct each field.", fields=tuple(problems)
            )
        return RegisteredInstance(
            plugin=plugin,
            instance=instance,
            manifest=manifest,
            address=registration.address,
            certificate=registration.certificate,
            sealed_token=self._vault.seal(registration.token, *store.token_place(plugin, instance)),
            digest=_digest(registration),
            registered_at=now,
        )

    def checked_manifest(self, declared: dict[str, object], source: str) -> Manifest:
        """Return a manifest that may be registered here, or say why not."""
        manifest = check_manifest(declared, source)
        if manifest.name in self._reserved:
            raise ConflictError(
                f"{manifest.name} is part of the platform.", remedy="Give the plugin another name."
            )
        if not _NAME.fullmatch(manifest.name):
            raise InvalidInputError(
                f"{manifest.name!r} cannot name a plugin.",
                remedy="Use up to 64 lower-case letters, digits and '-', beginning and ending with a letter or digit.",
                fields=(FieldProblem("manifest.name", "is not a valid name", manifest.name),),
            )
        return manifest

    async def goodbye(self, plugin: str, instance: str) -> None:
        """Forget an instance that leaves; one that is not known has left already."""
        await audit.change(
            self._database,
            lambda connection: store.forget_instance(connection, plugin, instance),
            self._clock(),
            "plugin goodbye",
            plugin,
            detail=instance,
        )
        for kept in (self._instances, self._heard_at, self._unwritten):
            kept.pop((plugin, instance), None)

    async def dismiss(self, plugin: str, why: str = "") -> None:
        """Call no instance of a plugin any more; each is told to leave when it is next heard of."""
        now = self._clock()
        await audit.change(
            self._database,
            lambda connection: store.dismiss_instances(connection, plugin, now),
            now,
            "plugin remove",
            plugin,
            detail=why,
        )
        await self.refresh(at_once=True)

    async def refresh(self, *, at_once: bool = False) -> None:
        """Read the table again if what was read is older than half a heartbeat."""
        now = self._clock()
        if now - self._read_at < READ_EVERY_S and not at_once:
            return
        self._read_at = now
        table = await self._database.read(store.read_heartbeats)
        unread = {
            key
            for key, (registered_at, _) in table.items()
            if key not in self._instances or self._instances[key].registered_at != registered_at
        }
        if unread:
            fresh = await self._database.read(lambda connection: store.read_instances(connection, unread))
            self._instances |= {(one.plugin, one.instance): one for one in fresh}
        for key in [key for key in self._instances if key not in table]:
            if self._instances[key].registered_at < now:  # not one that registered while we read
                del self._instances[key]
        for key, (_, heartbeat_at) in table.items():
            self._heard_at[key] = max(heartbeat_at, self._heard_at.get(key, 0.0))

    def restart_waiting(self) -> None:
        """Count silence from now on: this process itself was not listening before."""
        self._began_at = self._clock()

    async def write_heartbeats(self) -> None:
        """Write down who was heard since the last time, for the other server processes."""
        heard, self._unwritten = self._unwritten, {}
        if heard:
            await self._database.write(lambda connection: store.write_heartbeats(connection, heard))

    async def forget_silent(self) -> None:
        """Forget instances that have long been silent where nobody would miss them."""
        now = self._clock()
        for (plugin, instance), one in list(self._instances.items()):
            replaced = one.dismissed or self.active(plugin) is not None
            if replaced and now - self._heard(plugin, instance) > FORGET_AFTER_S:
                await self.goodbye(plugin, instance)

    def names(self) -> set[str]:
        """Return every plugin that has an instance, silent or not."""
        return {plugin for (plugin, _), one in self._instances.items() if not one.dismissed}

    def active(self, plugin: str) -> RegisteredInstance | None:
        """Return the instance that is called: of those that answer the newest version, then the newest registration."""
        return max(
            (one for one in self._of(plugin) if self.is_alive(one)),
            key=lambda one: (version_order(one.manifest.version), one.registered_at),
            default=None,
        )

    def manifest(self, plugin: str) -> Manifest | None:
        """Return what a plugin declares: the one that is called, else the last that was."""
        chosen = self.active(plugin) or max(
            self._of(plugin), key=lambda one: self._heard(plugin, one.instance), default=None
        )
        return None if chosen is None else chosen.manifest

    def where(self, instance: RegisteredInstance) -> CallAddress:
        """Return how to call an instance."""
        place = store.token_place(instance.plugin, instance.instance)
        token = self._vault.open(instance.sealed_token, *place)
        return CallAddress(instance.address, instance.certificate, token)

    def is_alive(self, instance: RegisteredInstance) -> bool:
        """Return whether an instance was heard of lately; one that nobody could hear, because we were not there, is."""
        heard_at = max(self._heard(instance.plugin, instance.instance), self._began_at)
        return self._clock() - heard_at < OFFLINE_AFTER_S

    def silent_s(self, plugin: str) -> float:
        """Return for how long nothing was heard of any instance of a plugin."""
        heard = [self._heard(plugin, one.instance) for one in self._of(plugin)]
        return self._clock() - max(heard, default=self._began_at)

    def shown(self, plugin: str) -> tuple[PluginInstance, ...]:
        """Return a plugin's instances as people see them."""
        chosen = self.active(plugin)

        def state(one: RegisteredInstance) -> InstanceState:
            if one is chosen:
                return InstanceState.ACTIVE
            return InstanceState.SUPERSEDED if self.is_alive(one) else InstanceState.OFFLINE

        return tuple(
            PluginInstance(
                id=one.instance,
                version=one.manifest.version,
                state=state(one),
                address=one.address,
                registered_at=one.registered_at,
                heartbeat_at=self._heard(plugin, one.instance),
            )
            for one in sorted(self._of(plugin), key=lambda one: one.registered_at)
        )

    def _of(self, plugin: str) -> list[RegisteredInstance]:
        return [one for (name, _), one in self._instances.items() if name == plugin and not one.dismissed]

    def _heard(self, plugin: str, instance: str) -> float:
        return self._heard_at.get((plugin, instance), 0.0)


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key by which versions sort: 1.9 before 1.10, and 2.0-rc1 before 2.0."""
    parts = [part for part in re.split(r"[.+-]", version) if part]
    return (*((2, int(part), "") if part.isdigit() else (0, 0, part) for part in parts), (1, 0, ""))


def _digest(registration: Registration) -> str:
    return hashlib.sha256(msgspec.json.encode(registration, order="sorted")).hexdigest()
