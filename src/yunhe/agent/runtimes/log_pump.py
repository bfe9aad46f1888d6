"""Moves a task's output into its log. Who writes much pays for it: then a process in the task's own group moves it."""

from __future__ import annotations

import mmap
import os
import select
import signal
import struct
import time

from yunhe.agent.limits.limits import LimitGroup
from yunhe.agent.runs.logs import LogWriter, end_of_log
from yunhe.agent.runs.users import end_with

HAND_OVER_BYTES = 1024 * 1024
"""How much of a task's output its wrapper moves itself, outside the task's limits."""
_PIECE_BYTES = 65536
_OFFSET = struct.Struct("<Q")
_DRAINED_WITHIN_S = 2.0


class LogPump:
    """Reads the pipes of *sources*, each with its stream, and writes the log; by this process, or one it has started."""

    def __init__(
        self,
        directory: str,
        limit_bytes: int,
        sources: dict[int, str],
        group: LimitGroup,
        *,
        compress: bool = True,
    ) -> None:
        self._directory = directory
        self._group = group
        self._limit_bytes = limit_bytes
        self._compress = compress
        self._writer = self._new_writer(0)
        self._shared = mmap.mmap(-1, _OFFSET.size)
        self._pid = 0
        self._hand_over_at = HAND_OVER_BYTES
        self.sources = sources
        for source in sources:
            os.set_blocking(source, False)

    def _new_writer(self, offset: int) -> LogWriter:
        return LogWriter(self._directory, self._limit_bytes, offset, compress=self._compress)

    @property
    def pid(self) -> int:
        """Return the process in the task's group that moves output; 0 where that is this one."""
        return self._pid

    @property
    def is_ours(self) -> bool:
        """Return whether it is this process that must wait for output."""
        return self._pid == 0

    @property
    def offset(self) -> int:
        """Return how many bytes of output there were, kept or not."""
        return self._writer.offset

    def pump(self) -> bool:
        """Move what output there is, unless another process does; return whether there was any."""
        if not self.is_ours or not self._move():
            return False
        if self._writer.offset > self._hand_over_at:
            self._hand_over()
        return True

    def _move(self) -> bool:
        moved = False
        for source, stream in self.sources.items():
            try:
                data = os.read(source, _PIECE_BYTES)
            except BlockingIOError:
                continue
            self._writer.write(data, stream)
            moved |= bool(data)
        return moved

    def _hand_over(self) -> None:
        _OFFSET.pack_into(self._shared, 0, self._writer.offset)
        me = os.getpid()
        try:
            self._pid = os.fork()
        except OSError:
            self._hand_over_at += HAND_OVER_BYTES  # the host cannot now; a little later perhaps
            return
        if self._pid == 0:
            try:
                self._be_pump(me)
            finally:
                os._exit(0)

    def _be_pump(self, parent: int) -> None:
        self._group.join()
        heard, alarm = os.pipe()
        os.set_blocking(alarm, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda _number, _frame: None)
        end_with(parent)
        poll = select.poll()
        for source in self.sources:
            poll.register(source, select.POLLIN)
        poll.register(heard, select.POLLIN)
        told = False
        while True:
            while self._move():
                _OFFSET.pack_into(self._shared, 0, self._writer.offset)
            if told:
                return
            told = any(handle == heard for handle, _ in poll.poll())

    def note_end(self, pid: int) -> None:
        """Go on where the other process has ended, if *pid* was it."""
        if pid and pid == self._pid:
            self._pid = 0
            # Of its last piece it may have written what it had no time to count.
            offset = max(_OFFSET.unpack_from(self._shared, 0)[0], end_of_log(self._directory))
            self._writer.close()
            self._writer = self._new_writer(offset)
            self._hand_over_at = offset + HAND_OVER_BYTES

    def take_back(self) -> None:
        """Have the other process move what is left, and end; what comes after it is for this one."""
        if self.is_ours:
            return
        os.kill(self._pid, signal.SIGTERM)
        until = time.monotonic() + _DRAINED_WITHIN_S
        while not self.is_ours and time.monotonic() < until:
            ended, _ = os.waitpid(self._pid, os.WNOHANG)
            self.note_end(ended)
            time.sleep(0 if ended else 0.002)
        if not self.is_ours:
            os.kill(self._pid, signal.SIGKILL)
            self.note_end(os.waitpid(self._pid, 0)[0])

    def close(self) -> None:
        """Close the log."""
        self._writer.close()
