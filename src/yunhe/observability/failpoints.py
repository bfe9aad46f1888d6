"""Failpoints: named steps at which a test may kill this process, to show that nothing is lost there."""

import os
import signal
from pathlib import Path


def failpoint(name: str) -> None:
    """End this process with SIGKILL if ``$YUNHE_FAILPOINT`` names this step and its marker can be taken.

    The marker is a file ``<name>`` in ``$YUNHE_FAILPOINT_DIR``; taking it removes it, so that each is hit once even
    when several processes pass by and the process is started again.
    """
    if os.environ.get("YUNHE_FAILPOINT") is None:
        return
    if name not in os.environ["YUNHE_FAILPOINT"].split(","):
        return
    try:
        Path(os.environ.get("YUNHE_FAILPOINT_DIR", "."), name).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
