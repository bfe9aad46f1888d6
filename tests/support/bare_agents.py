"""Agents on hosts that lack something: started by a Python that first loses the system calls in question."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

CALLS = {"unshare": (272, 97), "seccomp": (317, 277)}
"""Numbers on x86_64 and aarch64."""
_PROGRAM = """#!{python} -IS
import ctypes, os, struct, sys
column = 0 if os.uname().machine == "x86_64" else 1
step = lambda code, value, yes=0, no=0: struct.pack("<HBBI", code, yes, no, value)
text = step(0x20, 0)
for numbers in {calls!r}:
    text += step(0x15, numbers[column], 0, 1) + step(0x06, 0x00050001)
text += step(0x06, 0x7FFF0000)
held = ctypes.create_string_buffer(text, len(text))
program = ctypes.create_string_buffer(struct.pack("@HP", len(text) // 8, ctypes.addressof(held)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
{become}
os.execv({started!r}, [{started!r}, *sys.argv[1:]])
"""


@contextmanager
def python_without(*calls: str, uid: int = 0, python: str = "") -> Generator[str]:
    """Yield a Python whose processes may not use *calls*; with *uid*, they are that user's; *python* takes its place."""
    with TemporaryDirectory(prefix="yunhe-bare-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "python"
        become = (
            f"os.setgroups([]); os.setresgid({uid}, {uid}, {uid}); os.setresuid({uid}, {uid}, {uid})"
            if uid
            else ""
        )
        started = python or ("/usr/bin/python3" if uid else sys.executable)  # one that any user may run
        named = {"python": "/usr/bin/python3" if uid else sys.executable, "started": started}
        path.write_text(_PROGRAM.format(**named, calls=[CALLS[name] for name in calls], become=become))
        path.chmod(0o755)
        yield str(path)
