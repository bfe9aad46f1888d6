"""What a server process can be told: where its data is, which database, where it listens."""

import os
from enum import StrEnum
from pathlib import Path

import msgspec

from yunhe.kernel.quotas import QuotaLimits
from yunhe.kernel.units import MIB
from yunhe.observability.log_file import FILE_BYTES
from yunhe.runtime.limits import Retention, ServerLimits
from yunhe.scheduling.perception.freshness import DEFAULT_BOUNDS
from yunhe.scheduling.perception.model import FactBounds

DEFAULT_PORT = 8600
DEFAULT_RESERVE_MIB = 32
DEFAULT_AUDIT_DAYS = 400


class ProcessRole(StrEnum):
    """Which half of the platform a process hosts."""

    ALL = "all"
    API = "api"
    """Answers requests; starts nothing on pools."""
    WORKER = "worker"
    """Claims rows and drives pools; answers only ``/ready`` and ``/modules``."""


class LogLevel(StrEnum):
    """From which level on events are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one server process; the defaults serve at once on one machine."""

    home: Path
    """Where SQLite, the vault's key and the local agent live."""
    database_url: str = ""
    """Empty: SQLite below ``home``. Otherwise ``postgresql://…``."""
    files: Path | None = None
    """Where archives and outputs are kept; every server must see the same folder. See ``files_folder``."""
    role: ProcessRole = ProcessRole.ALL
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    upload_limit_bytes: int = 1024**3
    audit_retention_s: float = DEFAULT_AUDIT_DAYS * 86400.0
    """How long lines of the audit log are kept; older ones go, and a signed cut stays."""
    head_webhook: str = ""
    """Where new signed heads of ledger and audit log are posted; empty: nowhere."""
    limits: ServerLimits = ServerLimits()
    retention: Retention = Retention()
    quotas: QuotaLimits = QuotaLimits()
    """Of projects that have none of their own."""
    fact_bounds: FactBounds = DEFAULT_BOUNDS
    """How old what is known of pools may be."""
    reserve_bytes: int = DEFAULT_RESERVE_MIB * MIB
    """Room on SQLite's disk that new jobs must leave to those that have begun."""
    log_level: LogLevel = LogLevel.INFO
    log_stderr: bool = True
    """Whether the log goes to standard error too: as text on a terminal, as JSON lines elsewhere."""
    log_file_bytes: int = FILE_BYTES
    """When the log's file is rotated."""
    encode_calls: bool = False
    """Encode and decode every call between sub-modules, as if they were in other processes."""

    def resolved_database_url(self) -> str:
        """Return the database to use."""
        return self.database_url or f"sqlite:///{self.home / 'yunhe.db'}"

    def files_folder(self) -> Path | None:
        """Return where archives and outputs are kept; None: servers with homes of their own share the database alone."""
        if self.files is not None:
            return self.files
        return self.home / "files" if self.resolved_database_url().startswith("sqlite") else None


def log_path(home: Path) -> Path:
    """Return the file that the servers of *home* write their log to."""
    return home / "server.log"


def default_home() -> Path:
    """Return ``$YUNHE_HOME``, or ``~/.yunhe``."""
    return Path(os.environ.get("YUNHE_HOME") or Path.home() / ".yunhe")
