"""The log of a server process: one line an event, a short sentence and its facts, as JSON or, on a terminal, as text.

Whoever logs only puts a line into a queue; a thread for each destination masks secrets and writes. A destination that is
full or slow loses lines, which are counted, and says so once it takes lines again. Logging never raises.
"""

import logging
import os
import queue
import re
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from yunhe.observability.context import bound_ids
from yunhe.observability.log_file import FILE_BYTES, LogFile
from yunhe.observability.redaction import MASK, SENSITIVE_NAME, redact

MOST_WAITING = 10_000
"""Lines that may wait for a destination."""
FLUSH_WITHIN_S = 2.0
MOST_CHARACTERS = 16_384
"""Of a message, a fact or a traceback."""
_MOST_READ = 4 * MOST_CHARACTERS
_MOST_FACTS = 40

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_PLAIN = (bool, int, float, type(None))
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_JSON = msgspec.json.Encoder()

lines_written: Counter[str] = Counter()
"""By level."""
lines_dropped: Counter[str] = Counter()
"""By destination."""


class Line(msgspec.Struct, frozen=True):
    """An event as it was told, with its secrets still in it."""

    at: float
    level: str
    logger: str
    message: str
    facts: Mapping[str, object] = msgspec.field(default_factory=dict[str, object])
    traceback: str = ""


def line_of(record: logging.LogRecord) -> Line:
    """Return the line of *record*: its sentence, the IDs that are bound here, and what was passed as ``extra``."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit their format must not cost the line
        message = f"{record.msg} {record.args}"
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    trace = (
        "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else record.exc_text or ""
    )
    facts = {**bound_ids(), **extra}
    return Line(record.created, record.levelname.lower(), record.name, message, facts, trace)


def as_json(line: Line) -> bytes:
    """Return *line* as one line of JSON, without secrets."""
    at = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    said = {"time": at, "level": line.level, "logger": line.logger, "message": _clean(line.message)}
    said |= {name: value for name, value in _facts(line).items() if name not in said}
    said |= {"pid": os.getpid()} | ({"traceback": _clean(line.traceback)} if line.traceback else {})
    return _JSON.encode(said) + b"\n"


def as_text(line: Line) -> bytes:
    """Return *line* for people, without secrets and without characters that would control their terminal."""
    at = datetime.fromtimestamp(line.at).astimezone().strftime("%H:%M:%S.%f")[:-3]
    facts = "".join(f" {name}={value}" for name, value in _facts(line).items())
    first = _escaped(f"{at} {line.level.upper():<8} {line.logger}: {_clean(line.message)}{facts}")
    rest = "".join(_escaped(text) + "\n" for text in _clean(line.traceback).splitlines())
    return f"{first}\n{rest}".encode()


def _facts(line: Line) -> dict[str, object]:
    shown = list(line.facts.items())[:_MOST_FACTS]
    return {name: MASK if SENSITIVE_NAME.search(name) else _fact(value) for name, value in shown}


def _fact(value: object) -> object:
    if type(value) in _PLAIN and not (isinstance(value, int) and abs(value) >= 1 << 63):
        return value
    try:
        return _clean(str(value))
    except Exception:  # noqa: BLE001 - whatever it is, it has no text
        return f"a {type(value).__name__} that cannot be shown"


def _clean(text: str) -> str:
    """Return *text* without secrets, of bounded length; of what is too long the end is kept, where the cause is."""
    text = redact(text[-_MOST_READ:]).encode(errors="replace").decode()
    return text if len(text) <= MOST_CHARACTERS else "…" + text[1 - MOST_CHARACTERS :]


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


class _Destination(threading.Thread):
    """Writes lines as they come; what it cannot take is counted, and told before the next line it can."""

    def __init__(self, name: str, shape: Callable[[Line], bytes], write: Callable[[bytes], None]) -> None:
        super().__init__(name=f"log to {name}", daemon=True)
        self._to = name
        self._shape = shape
        self._write = write
        self._waiting: queue.Queue[Line | None] = queue.Queue(MOST_WAITING)
        self._lock = threading.Lock()
        self._untold = 0

    def put(self, line: Line | None) -> None:
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._drop()

    def run(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                self._tell_dropped(line.at)
                self._write(self._shape(line))
            except Exception:  # noqa: BLE001 - a log that cannot be written must not end what it tells of
                self._drop()

    def stop(self) -> None:
        """Write what waits, for a limited time."""
        self.put(None)
        self.join(FLUSH_WITHIN_S)

    def _drop(self) -> None:
        with self._lock:
            lines_dropped[self._to] += 1
            self._untold += 1

    def _tell_dropped(self, at: float) -> None:
        count = self._untold
        if count:
            self._write(
                self._shape(Line(at, "warning", __name__, "lines of the log were dropped", {"lines": count}))
            )
            with self._lock:
                self._untold -= count


class _Passing(logging.Handler):
    """Passes each record on to every destination."""

    def __init__(self, destinations: list[_Destination]) -> None:
        super().__init__()
        self._destinations = destinations

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = line_of(record)
        except Exception:  # noqa: BLE001 - as above
            line = Line(record.created, record.levelname.lower(), record.name, "an event that cannot be told")
        lines_written[line.level] += 1
        for destination in self._destinations:
            destination.put(line)


@contextmanager
def logging_to(
    file: Path | None, *, level: str = "info", stderr: bool = True, file_bytes: int = FILE_BYTES
) -> Generator[None]:
    """Write the log of this process to *file* and to standard error until the block ends.

    *level* is that of the platform's own lines and of the HTTP server's; libraries are heard from warnings on.
    """
    destinations: list[_Destination] = []
    if file is not None:
        with suppress(OSError):  # each line that cannot be written is counted
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        destinations.append(_Destination("file", as_json, LogFile(file, file_bytes).append))
    if stderr:
        destinations.append(_Destination("stderr", as_text if os.isatty(2) else as_json, _to_stderr))
    for destination in destinations:
        destination.start()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers[:] = [_Passing(destinations)]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    for name in ("yunhe", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())
    try:
        yield
    finally:
        root.handlers[:], level_before = before
        root.setLevel(level_before)
        logging.captureWarnings(capture=False)
        for destination in destinations:
            destination.stop()


def _to_stderr(line: bytes) -> None:
    while line:
        line = line[os.write(2, line) :]
