"""The platform's own log: one line an event, a short plain sentence and its facts as ``key=value``."""

import logging
import sys

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FactFormatter(logging.Formatter):
    """Writes what was passed as ``extra`` after the sentence."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        line = super().format(record)
        facts = " ".join(f"{name}={value}" for name, value in vars(record).items() if name not in _STANDARD)
        head, _, traceback = line.partition("\n")
        return "\n".join(filter(None, (f"{head} {facts}".rstrip(), traceback)))


def configure_logs(level: int = logging.INFO) -> None:
    """Send the platform's log to standard error; libraries speak up only when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FactFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("yunhe").setLevel(level)
