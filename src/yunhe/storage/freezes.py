"""Noticing a PostgreSQL that stands still: it accepts connections and answers nothing.

No timeout of TCP tells: the kernel of its host goes on acknowledging. So a transaction that takes long has a new connection
tried; where that is not answered either, every connection is cut, and whoever waits on one is told that the database is away.
"""

import contextlib
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

LOOK_EVERY_S = 0.5
LONG_S = 3.0
"""A transaction that takes longer makes us look whether the database answers at all."""

log = logging.getLogger(__name__)


class FreezeWatch:
    """Looks after transactions that are under way; *answers* says whether the database takes a new connection."""

    def __init__(self, answers: Callable[[], bool]) -> None:
        self.is_frozen = False
        self._answers = answers
        self._begun: dict[int, float] = {}
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="database-watch", daemon=True)
        self._lock = threading.Lock()

    def add(self, connection: Any, _record: object = None) -> None:
        """Look after a connection that was just made."""
        with self._lock:
            self._connections.add(connection)
            if self._thread.ident is None:
                self._thread.start()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Look after the transaction of this thread while the block runs."""
        me = threading.get_ident()
        self._begun[me] = time.monotonic()
        try:
            yield
        finally:
            del self._begun[me]

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            oldest = min(list(self._begun.values()), default=None)
            if self.is_frozen or (oldest is not None and time.monotonic() - oldest > LONG_S):
                self._look()

    def _look(self) -> None:
        frozen = not self._answers()
        if frozen and not self.is_frozen:
            log.warning("database stands still")
        elif self.is_frozen and not frozen:
            log.warning("database answers again")
        self.is_frozen = frozen
        if frozen:
            with self._lock:
                connections = list(self._connections)
            for connection in connections:
                cut(connection)


def cut(connection: Any) -> None:
    """End a connection under whoever waits on it: the other side is not asked."""
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
