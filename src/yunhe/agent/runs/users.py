"""Who runs what: an unprivileged user per project where the agent is root, the agent's own user where it is not."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pwd
import resource
import signal

from yunhe.agent.durable import read_json, replace_json
from yunhe.agent.protocol.refusals import CONFLICT, FORBIDDEN, Refusal

DEFAULT_FIRST_UID = 700_000
DEFAULT_UID_COUNT = 65_536
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class Users:
    """Remembers which project has which user; a number is never given to a second project."""

    def __init__(self, path: str, first_uid: int, count: int) -> None:
        self._path = path
        self._first_uid = first_uid
        self._count = count
        self._uids: dict[str, int] = {}
        self._proposed: dict[str, int] = {}
        """What projects would get for which files are still coming."""
        self.notice = ""
        known = read_json(path)
        if known is not None:
            self._uids = {str(project): int(uid) for project, uid in known.items()}
        elif os.path.exists(path):
            os.replace(path, f"{path}.quarantine")
            self.notice = (
                "users.json could not be read and was set aside; users are taken back from the claims."
            )

    @property
    def per_project(self) -> bool:
        """Return whether this agent can keep projects apart."""
        return os.geteuid() == 0

    def restore(self, project: str, uid: int) -> None:
        """Take back what a claim says of *project*."""
        if project not in self._uids:
            self._uids[project] = uid
            replace_json(self._path, dict(self._uids))

    def propose(self, project: str) -> int:
        """Return the user *project* has, or would get; nothing is remembered yet."""
        known = self._uids.get(project)
        if known is not None:
            return known
        if not self.per_project and self._uids:
            owner = next(iter(self._uids))
            raise Refusal(
                FORBIDDEN,
                f"This node serves project {owner} only: its agent is not root and cannot keep projects apart.",
                remedy="Run the agent as root, or use another pool for this project.",
            )
        if project not in self._proposed:
            self._proposed[project] = self._free_uid(project) if self.per_project else os.geteuid()
        return self._proposed[project]

    def settle(self, project: str, uid: int) -> None:
        """Give *uid* to *project*, durably, before anything of it is kept."""
        if project in self._uids:
            return
        if uid in self._uids.values():
            raise Refusal(CONFLICT, f"The user for {project} was given away meanwhile.", remedy="Ask again.")
        uids = {**self._uids, project: uid}
        replace_json(self._path, dict(uids))
        self._uids = uids

    def _free_uid(self, project: str) -> int:
        """Return a number by hash, so that agents of one machine rarely meet, past those that are taken."""
        seed = hashlib.sha256(f"{self._path}\0{project}".encode()).digest()
        start = int.from_bytes(seed[:8], "big")
        taken = {*self._uids.values(), *self._proposed.values()} | {entry.pw_uid for entry in pwd.getpwall()}
        for step in range(self._count):
            uid = self._first_uid + (start + step) % self._count
            if uid not in taken:
                return uid
        raise Refusal(
            FORBIDDEN,
            f"All {self._count} users of this node are taken.",
            remedy="Give the agent a larger --uid-count.",
        )


LARGEST_USERS_BYTES = 1024 * 1024
"""A file of users that is larger stays as it is."""


def named(uid: int, home: str) -> dict[str, str]:
    """Return the lines of ``/etc/passwd`` and ``/etc/group`` by which a task's user has a name: ssh and git need one."""
    return {"/etc/passwd": f"task:x:{uid}:{uid}:task:{home}:/bin/sh\n", "/etc/group": f"task:x:{uid}:\n"}


def become(uid: int, *, for_good: bool = True) -> None:
    """Turn the calling process into an ordinary process of *uid* that, *for_good*, never gains privileges again."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if for_good:
        give_up_privileges()
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def give_up_privileges() -> None:
    """Let the calling process, and all it starts, never gain privileges again."""
    _prctl(_PR_SET_NO_NEW_PRIVS)


def adopt_orphans() -> None:
    """Let what our children leave behind become our own child, so that its counters reach us when it ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER)


def end_with(parent: int) -> None:
    """Let the kernel kill the calling process when *parent* ends; after ``become``, which would undo it.

    Who unpacks for an agent that is gone would do so beside whoever unpacks for the next one.
    """
    end_with_parent()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def end_with_parent() -> None:
    """Let the kernel kill the calling process when whoever started it ends; see to it that it has not yet."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int = 1) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")
