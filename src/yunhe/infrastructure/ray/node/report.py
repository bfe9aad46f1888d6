"""What an allocation tells the platform: one small file, read through Ray's log interface, and its minutes beside it.

``report.json``    where it stands; replaced whole, so that a reader sees the old one or the new one
``minutes.jsonl``  one line for each minute of use, numbered by the time it was folded
"""

from __future__ import annotations

import json
import os
import time
import zlib
from typing import Any

from yunhe.agent.durable import replace_json
from yunhe.agent.limits.ungrouped import Ungrouped
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.logs import end_of_log, segments
from yunhe.agent.runs.meters import Meter, UsageSample, read_io, read_use
from yunhe.agent.runtimes.wrapper import clock_ms

SAMPLE_S = 1.0
IO_EVERY_SAMPLES = 5


class Reporter:
    """Samples one allocation each second and keeps its report up to date."""

    def __init__(self, run: Run, wrapper_pid: int) -> None:
        self._run = run
        self._group = Ungrouped(run.id, wrapper_pid)
        self._meter = Meter(run.at("samples"))
        self._start: dict[str, Any] = {}
        self._io = (0, 0)
        self._samples = 0
        self._last_minute = 0
        self._next_sample = 0.0
        self._told: dict[str, Any] = {}

    def tick(self) -> None:
        """Take a sample when one is due, and tell what is new."""
        if not self._has_begun():
            return
        if time.monotonic() >= self._next_sample:
            self._next_sample = time.monotonic() + SAMPLE_S
            self._sample()
            self._fold(everything=False)
        self._tell(None)

    def finish(self, ended: dict[str, Any]) -> None:
        """Take the exit record: final counters, last minute, last report."""
        if self._has_begun() and "cpu_us" in ended:
            last = self._meter.last()
            final = UsageSample(
                ended["ended_clock_ms"],
                int(ended["ended_at"] * 1000),
                ended["cpu_us"],
                last.memory_kib if last is not None else 0,
                ended["read_bytes"],
                ended["written_bytes"],
            )
            self._meter.finish(final, ended["memory_peak_kib"])
        self._fold(everything=True)
        self._tell(ended)

    def end_all(self) -> None:
        """Kill whatever of the allocation still lives."""
        self._group.kill()

    def _has_begun(self) -> bool:
        """Return whether the wrapper has recorded its start; the counters are counted from there."""
        if not self._start:
            self._start = self._run.record("start") or {}
            if self._start:
                began_ms = int(self._start["started_at"] * 1000)
                self._meter.add(UsageSample(self._start["started_clock_ms"], began_ms, 0, 0, 0, 0))
        return bool(self._start)

    def _sample(self) -> None:
        use = read_use(self._group, self._run.at("reaped"))
        if self._samples % IO_EVERY_SAMPLES == 0:
            self._io = read_io(self._group, self._run.at("reaped"))
        self._samples += 1
        self._meter.add(UsageSample(clock_ms(), int(time.time() * 1000), *use, *self._io))

    def _fold(self, *, everything: bool) -> None:
        minutes = self._meter.fold(everything=everything)
        if not minutes:
            return
        with open(self._run.at("minutes.jsonl"), "a", encoding="utf-8") as file:
            for minute in minutes:
                until_ms = minute.pop("until_ms")
                self._last_minute = self._number()
                body = {"seq": self._last_minute, "allocation_id": self._run.id, **minute}
                file.write(json.dumps(body, separators=(",", ":")) + "\n")
                self._meter.mark(until_ms)

    def _number(self) -> int:
        """Return a number that grows with time on every node, and that no two allocations share."""
        own = zlib.crc32(self._run.id.encode()) % 1000
        return max(time.time_ns() // 1000 * 1000 + own, self._last_minute + 1000)

    def _tell(self, ended: dict[str, Any] | None) -> None:
        news: dict[str, Any] = {
            "started_at": self._start.get("started_at"),
            "step": (ended or {}).get("step") or _read_text(self._run.at("step")),
            "log_bytes": (ended or {}).get("log_bytes", end_of_log(self._run.log)),
            "log_starts": segments(self._run.log),
            "meters": self._meter.totals(),
            "last_minute": self._last_minute,
            "ended": ended,
        }
        if news != self._told:
            write_report(self._run, news)
            self._told = news


def write_report(run: Run, news: dict[str, Any]) -> None:
    """Replace the report; the last one is made durable, the others are news."""
    if news["ended"] is not None:
        replace_json(run.at("report.json"), news)
        return
    fresh = run.at("report.new")
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(news, file, separators=(",", ":"))
    os.replace(fresh, run.at("report.json"))


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
