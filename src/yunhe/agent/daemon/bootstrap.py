"""Takes the agent onto a node over the connection that will then carry its frames.

The platform passes this text to the node's own Python on the command line, so it is short and imports little. It says
whether it needs the agent's file, receives it if so, checks it, and becomes its bridge.
"""

import errno
import hashlib
import os
import sys

MARK = "YUNHE-AGENT"


def say(words):  # type: ignore[no-untyped-def]  # also read by Pythons too old for annotations, to tell them so
    """Write one line that stands out from whatever a login shell prints."""
    os.write(1, ("\n%s %s\n" % (MARK, words)).encode())


def receive(size):  # type: ignore[no-untyped-def]
    """Read exactly *size* bytes and not one more: what follows belongs to the bridge."""
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit("the connection ended while the agent was being sent")
        data += piece
    return data


def is_there(path, digest):  # type: ignore[no-untyped-def]
    """Return whether the wanted agent is here already, whole."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False


def put(path, digest, size, version):  # type: ignore[no-untyped-def]
    """Ask for the agent and write it, whole or not at all."""
    if not os.access(os.path.dirname(path), os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    say("need " + version)
    data = receive(size)
    if hashlib.sha256(data).hexdigest() != digest:
        sys.exit("the agent arrived damaged")
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.replace(path + ".new", path)


def main(root, digest, size, *arguments):  # type: ignore[no-untyped-def]
    """Put the agent's file into *root* unless it is there, and become its bridge."""
    version = "%d.%d" % sys.version_info[:2]
    if sys.version_info < (3, 8):
        say("old " + version)
        sys.exit(5)
    if not root:
        root = "/var/lib/yunhe/agent" if os.geteuid() == 0 else "~/.yunhe/agent"
    root = os.path.abspath(os.path.expanduser(root))
    os.umask(0o022)  # users of projects must be able to pass through every directory above theirs
    path = os.path.join(root, "agent-%s.pyz" % digest[:16])
    try:
        os.makedirs(root, exist_ok=True)
        if is_there(path, digest):
            say("have " + version)
        else:
            put(path, digest, int(size), version)
    except OSError as fault:
        sys.exit("the root %s cannot be used: %s" % (root, fault.strerror))
    command = [sys.executable, "-I", "-S", path, "bridge", "--root", root]
    os.execv(sys.executable, command + list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
