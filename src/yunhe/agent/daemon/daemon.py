"""The daemon: one per root directory, behind a lock and a socket that only its user may open."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import hashlib
import os
import signal
import socket
import sys
import time
from typing import Callable, NamedTuple

from yunhe.agent.daemon.server import AgentServer
from yunhe.agent.daemon.spawner import Spawner
from yunhe.agent.daemon.tasks import TaskSet
from yunhe.agent.files.paths import ShortPath
from yunhe.agent.runs.node import AgentNode, AgentSettings
from yunhe.agent.runs.watch import RunWatch

TICK_S = 1.0
EARLY_SAMPLE_S = 0.15
MAX_OWN_LOG_BYTES = 1024 * 1024


class Launch(NamedTuple):
    """How this process was started, so that it can start its successor the same way."""

    settings: AgentSettings
    agent_file: str
    arguments: list[str]
    idle_s: int = 0
    """After how long without a task or a platform it ends; 0: never."""
    listening: int | None = None
    """The socket a predecessor has handed over."""
    lock: int | None = None


class NotTraversableError(Exception):
    """Projects' users could not reach their own directories."""


def serve(launch: Launch) -> int:
    """Serve until told to end, or become the agent that was sent."""
    root = launch.settings.root
    os.makedirs(root, exist_ok=True)
    check_reachable(root)
    lock = launch.lock if launch.lock is not None else take_lock(root)
    if lock is None:
        return 0  # somebody else serves this root already
    _log_to(os.path.join(root, "agent.log"))
    listening = _inherit(launch.listening) if launch.listening is not None else _listen(root)
    replacement = asyncio.run(_Daemon(launch, listening).run())
    if replacement:
        _become(launch, replacement, listening, lock)
    with ShortPath(root) as short:
        os.unlink(f"{short}/agent.sock")
    return 0


def check_reachable(root: str) -> None:
    """Refuse a root below a directory that projects' users may not pass through; only a root agent has such users."""
    path = os.path.dirname(os.path.realpath(root))
    while os.geteuid() == 0 and path != "/":
        if not os.stat(path).st_mode & 0o001:
            raise NotTraversableError(
                f"{path} may not be entered by others, so projects could not reach their files below {root}. "
                "Choose a root such as /var/lib/yunhe/agent."
            )
        path = os.path.dirname(path)


def take_lock(root: str) -> int | None:
    """Return the lock of *root*, or None if somebody holds it."""
    handle = os.open(os.path.join(root, "agent.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    with contextlib.suppress(OSError):  # for people; written over the last one's, which needs no room
        os.pwrite(handle, f"{os.getpid():<19}\n".encode(), 0)
    return handle


def _listen(root: str) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with ShortPath(root) as short:
        _remove(f"{short}/agent.sock")
        before = os.umask(0o177)
        line.bind(f"{short}/agent.sock")
        os.umask(before)
    line.listen(64)
    return line


def _inherit(handle: int) -> socket.socket:
    line = socket.socket(fileno=handle)
    line.set_inheritable(False)
    return line


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _log_to(path: str) -> None:
    """Send what this process says of itself to a file, which starts anew when it has grown too large."""
    try:
        mode = os.O_TRUNC if os.stat(path).st_size > MAX_OWN_LOG_BYTES else os.O_APPEND
    except FileNotFoundError:
        mode = os.O_APPEND
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600)
    except OSError:  # no inode is left for it
        handle = os.open(os.devnull, os.O_WRONLY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    os.close(nothing)


def _become(launch: Launch, replacement: str, listening: socket.socket, lock: int) -> None:
    """Replace this process by the agent in *replacement*; connections that come meanwhile wait in the socket."""
    os.set_inheritable(listening.fileno(), True)
    os.set_inheritable(lock, True)
    kept = ["--listening", str(listening.fileno()), "--lock", str(lock)]
    command = [sys.executable, "-I", "-S", replacement, "daemon", *launch.arguments, *kept]
    os.execv(sys.executable, command)


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _clean(spawner: Spawner, node: AgentNode, path: str) -> None:
    """Have a process remove the directory at *path*; what it leaves, the next daemon removes."""
    with node.told_of(path):
        spawner.spawn("clean", {"path": path, **node.keeper.as_body()})


class _Daemon:
    def __init__(self, launch: Launch, listening: socket.socket) -> None:
        self._launch = launch
        self._listening = listening
        # A thread to ask who may be slow; all else happens in the loop.
        self._asker = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self._probed: "asyncio.Future[None] | None" = None

    async def run(self) -> str:
        """Serve; return the file of a successor, or nothing if there is none."""
        launch = self._launch
        spawner = Spawner([sys.executable, "-I", "-S", launch.agent_file])
        node = AgentNode(launch.settings, spawner)
        node.on_trash = lambda path: _clean(spawner, node, path)
        watch = RunWatch(node)
        watch.recover()
        loop = asyncio.get_event_loop()
        node.on_stray = lambda name: self._asker.submit(node.runtimes.remove, name) and None
        tasks = TaskSet()
        server = AgentServer(node, watch, _digest_of(launch.agent_file), lambda: self._probe(node))
        if watch.may_have_strays():
            tasks.start(self._clear_strays(node, watch))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.replace.set)
        events = self._open_events(node, watch)
        accepting = tasks.start(self._accept(tasks, server))
        await self._tick_until(
            server.replace, watch, lambda: server.is_connected or node.register.allocations
        )
        accepting.cancel()
        await server.close()
        await tasks.dismiss()
        loop.remove_reader(events.fileno())
        events.close()
        spawner.close()
        node.spool.close()
        node.register.close()
        self._asker.shutdown(wait=True)
        if not server.replacement:
            node.keeper.remove()
            node.runtimes.network.remove()
        return server.replacement

    async def _probe(self, node: AgentNode) -> None:
        """Ask, once, which runtimes work on this host; whoever wants to know waits for it."""
        if self._probed is None:
            probed = asyncio.get_event_loop().run_in_executor(self._asker, node.runtimes.probe)
            self._probed = asyncio.ensure_future(probed)
        await asyncio.shield(self._probed)

    async def _clear_strays(self, node: AgentNode, watch: RunWatch) -> None:
        """Have removed what the runtimes of an earlier life have left."""
        await self._probe(node)
        left = await asyncio.get_event_loop().run_in_executor(self._asker, node.runtimes.leftovers)
        watch.clear_strays(left)

    async def _accept(self, tasks: TaskSet, server: AgentServer) -> None:
        """Take connections. Not by asyncio's own server: that one wants the socket's path, which is a short-lived one."""
        self._listening.setblocking(False)
        while True:
            connection, _ = await asyncio.get_event_loop().sock_accept(self._listening)
            connection.setblocking(False)
            tasks.start(self._serve(server, connection))

    async def _serve(self, server: AgentServer, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        await server.serve(reader, writer)

    def _open_events(self, node: AgentNode, watch: RunWatch) -> socket.socket:
        """Listen for wrappers that say that something happened."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with ShortPath(node.root) as short:
            _remove(f"{short}/events.sock")
            before = os.umask(0o177)
            line.bind(f"{short}/events.sock")
            os.umask(before)
        line.setblocking(False)

        def take() -> None:
            while True:
                try:
                    name = line.recv(256).decode(errors="replace")
                except BlockingIOError:
                    return
                allocation = node.register.allocations.get(name)
                if allocation is not None and allocation.claimed:
                    watch.look(allocation)
                    loop.call_later(EARLY_SAMPLE_S, watch.sample_early, allocation)

        loop = asyncio.get_event_loop()
        loop.add_reader(line.fileno(), take)
        return line

    async def _tick_until(self, end: asyncio.Event, watch: RunWatch, busy: Callable[[], object]) -> None:
        """Tick until told to end, or until nobody has needed this agent for long; whoever needs it starts it again."""
        following = busy_at = time.monotonic()
        while not end.is_set():
            watch.tick()
            following = max(following + TICK_S, time.monotonic())
            if busy():
                busy_at = following
            elif self._launch.idle_s and following - busy_at > self._launch.idle_s:
                return
            try:
                await asyncio.wait_for(end.wait(), following - time.monotonic())
            except asyncio.TimeoutError:
                continue
