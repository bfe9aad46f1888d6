"""Tables of the plugin registry: instances that registered, and processes the platform starts itself."""

import itertools
from dataclasses import dataclass

import msgspec
import sqlalchemy as sa

from yunhe.control.plugins.model import AllowedFolder
from yunhe.infrastructure.contract.manifest import Manifest
from yunhe.storage.database import AnyRow, Connection, insert_if_missing, json_column, metadata
from yunhe.storage.resealing import SealedColumn

INSTANCES = sa.Table(
    "plugin_instance",
    metadata,
    sa.Column("plugin", sa.String(64), primary_key=True),
    sa.Column("instance", sa.String(128), primary_key=True),
    json_column("manifest"),
    sa.Column("address", sa.String(255), nullable=False),
    sa.Column("certificate", sa.Text, nullable=False),
    sa.Column("sealed_token", sa.Text, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("registered_at", sa.Float, nullable=False),
    sa.Column("heartbeat_at", sa.Float, nullable=False),
    sa.Column("dismissed", sa.Boolean, nullable=False),
)
PROCESSES = sa.Table(
    "plugin_process",
    metadata,
    sa.Column("instance", sa.String(128), primary_key=True),
    sa.Column("plugin", sa.String(64), nullable=False, index=True),
    sa.Column("directory", sa.Text, nullable=False),
    json_column("manifest"),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("sealed_key", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer),
    sa.Column("start_ticks", sa.BigInteger),
    sa.Column("restarts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("not_before", sa.Float, nullable=False, server_default="0"),
    sa.Column("leaving_since", sa.Float),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("added_at", sa.Float, nullable=False),
    sa.Column("uid", sa.Integer),
)
SEALED_TOKENS = SealedColumn(
    "plugin token",
    INSTANCES,
    "sealed_token",
    lambda vault, row: vault.renew(row.sealed_token, *token_place(row.plugin, row.instance)),
)
SEALED_KEYS = SealedColumn(
    "plugin key",
    PROCESSES,
    "sealed_key",
    lambda vault, row: vault.renew(row.sealed_key, *key_place(row.instance)),
)
FOLDERS = sa.Table(
    "plugin_folder",
    metadata,
    sa.Column("directory", sa.Text, primary_key=True),
    sa.Column("allowed_at", sa.Float, nullable=False),
    sa.Column("allowed_by", sa.String(64), nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredInstance:
    """A process of a plugin that has registered."""

    plugin: str
    instance: str
    manifest: Manifest
    address: str
    certificate: str
    sealed_token: str
    digest: str
    """Of everything it said when it registered; the same again is a mere heartbeat."""
    registered_at: float
    dismissed: bool = False
    """An operator removed the plugin: it is not called any more, and told to leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that the platform starts, watches and ends."""

    instance: str
    plugin: str
    directory: str
    manifest: Manifest
    host: str
    sealed_key: str
    added_at: float
    pid: int | None = None
    start_ticks: int | None = None
    restarts: int = 0
    not_before: float = 0.0
    leaving_since: float | None = None
    reason: str = ""
    uid: int | None = None
    """The user it runs as; None: the server's own, which is not root."""


def token_place(plugin: str, instance: str) -> tuple[str, ...]:
    """Return what the token with which an instance is called is bound to."""
    return "plugin token", plugin, instance


def key_place(instance: str) -> tuple[str, ...]:
    """Return what the key with which a process registers is bound to."""
    return "plugin key", instance


def read_folders(connection: Connection) -> list[AllowedFolder]:
    """Return the folders that plugins may be started from, by name."""
    rows = connection.execute(sa.select(FOLDERS).order_by(FOLDERS.c.directory))
    return [
        AllowedFolder(directory=row.directory, allowed_at=row.allowed_at, allowed_by=row.allowed_by)
        for row in rows
    ]


def allow_folder(connection: Connection, folder: AllowedFolder) -> None:
    """Let plugins be started from a folder."""
    insert_if_missing(
        connection,
        FOLDERS,
        directory=folder.directory,
        allowed_at=folder.allowed_at,
        allowed_by=folder.allowed_by,
    )


def disallow_folder(connection: Connection, directory: str) -> None:
    """Let no plugin be started from a folder any more."""
    connection.execute(FOLDERS.delete().where(FOLDERS.c.directory == directory))


def free_uid(connection: Connection, plugin: str, first: int) -> int:
    """Return the user of a plugin: the one it has, else the lowest from *first* on that no plugin has."""
    used = {row.plugin: row.uid for row in connection.execute(sa.select(PROCESSES.c.plugin, PROCESSES.c.uid))}
    if used.get(plugin) is not None:
        return used[plugin]
    return next(uid for uid in itertools.count(first) if uid not in used.values())


def read_heartbeats(connection: Connection) -> dict[tuple[str, str], tuple[float, float]]:
    """Return when each instance registered and was last heard of; small, so that it may be read often."""
    columns = (INSTANCES.c.plugin, INSTANCES.c.instance, INSTANCES.c.registered_at, INSTANCES.c.heartbeat_at)
    return {
        (row.plugin, row.instance): (row.registered_at, row.heartbeat_at)
        for row in connection.execute(sa.select(*columns))
    }


def read_instances(connection: Connection, keys: set[tuple[str, str]]) -> list[RegisteredInstance]:
    """Return these instances whole."""
    which = sa.tuple_(INSTANCES.c.plugin, INSTANCES.c.instance).in_(sorted(keys))
    return [
        RegisteredInstance(
            plugin=row.plugin,
            instance=row.instance,
            manifest=msgspec.json.decode(row.manifest, type=Manifest),
            address=row.address,
            certificate=row.certificate,
            sealed_token=row.sealed_token,
            digest=row.digest,
            registered_at=row.registered_at,
            dismissed=row.dismissed,
        )
        for row in connection.execute(sa.select(INSTANCES).where(which))
    ]


def write_instance(connection: Connection, instance: RegisteredInstance, now: float) -> None:
    """Keep a registration in place of an older one of the same instance."""
    forget_instance(connection, instance.plugin, instance.instance)
    connection.execute(
        INSTANCES.insert().values(
            plugin=instance.plugin,
            instance=instance.instance,
            manifest=msgspec.json.encode(instance.manifest),
            address=instance.address,
            certificate=instance.certificate,
            sealed_token=instance.sealed_token,
            digest=instance.digest,
            registered_at=instance.registered_at,
            heartbeat_at=now,
            dismissed=False,
        )
    )


def write_heartbeats(connection: Connection, heard: dict[tuple[str, str], float]) -> None:
    """Note when instances were heard of; never earlier than what another process has noted."""
    later = (
        INSTANCES.update()
        .where(
            INSTANCES.c.plugin == sa.bindparam("p"),
            INSTANCES.c.instance == sa.bindparam("i"),
            INSTANCES.c.heartbeat_at < sa.bindparam("t"),
        )
        .values(heartbeat_at=sa.bindparam("t"))
    )
    connection.execute(later, [{"p": p, "i": i, "t": at} for (p, i), at in heard.items()])


def dismiss_instances(connection: Connection, plugin: str, now: float) -> None:
    """Let every instance of a plugin be told to leave; the new time makes every server process read them again."""
    connection.execute(
        INSTANCES.update().where(INSTANCES.c.plugin == plugin).values(dismissed=True, registered_at=now)
    )


def forget_instance(connection: Connection, plugin: str, instance: str) -> None:
    """Drop an instance that said goodbye."""
    connection.execute(
        INSTANCES.delete().where(INSTANCES.c.plugin == plugin, INSTANCES.c.instance == instance)
    )


def read_processes(
    connection: Connection, *, plugin: str | None = None, host: str | None = None
) -> list[Process]:
    """Return the processes the platform keeps, oldest first: all, of one plugin, or on one host."""
    query = sa.select(PROCESSES).order_by(PROCESSES.c.added_at)
    if plugin is not None:
        query = query.where(PROCESSES.c.plugin == plugin)
    if host is not None:
        query = query.where(PROCESSES.c.host == host)
    return [_to_process(row) for row in connection.execute(query)]


def write_process(connection: Connection, process: Process) -> None:
    """Keep a process that is to run, before it does."""
    connection.execute(
        PROCESSES.insert().values(
            instance=process.instance,
            plugin=process.plugin,
            directory=process.directory,
            manifest=msgspec.json.encode(process.manifest),
            host=process.host,
            sealed_key=process.sealed_key,
            added_at=process.added_at,
            uid=process.uid,
        )
    )


def forget_process(connection: Connection, instance: str) -> None:
    """Drop a process that has ended for good."""
    connection.execute(PROCESSES.delete().where(PROCESSES.c.instance == instance))


def update_process(connection: Connection, instance: str, **values: object) -> None:
    """Change what is noted of a process."""
    connection.execute(PROCESSES.update().where(PROCESSES.c.instance == instance).values(**values))


def _to_process(row: AnyRow) -> Process:
    return Process(
        instance=row.instance,
        plugin=row.plugin,
        directory=row.directory,
        manifest=msgspec.json.decode(row.manifest, type=Manifest),
        host=row.host,
        sealed_key=row.sealed_key,
        pid=row.pid,
        start_ticks=row.start_ticks,
        restarts=row.restarts,
        not_before=row.not_before,
        leaving_since=row.leaving_since,
        reason=row.reason,
        added_at=row.added_at,
        uid=row.uid,
    )
