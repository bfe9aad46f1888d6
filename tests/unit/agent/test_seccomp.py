"""The filter of system calls, run by hand: what the kernel would make of it on each architecture."""

import errno
import struct

import pytest

from yunhe.agent.runtimes.seccomp import build

ALLOWED = 0x7FFF0000
X86_64, AARCH64 = 0xC000003E, 0xC00000B7


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Return 0 where the filter lets a call through, else the error that the caller sees."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    at = loaded = 0
    while True:
        operation, when_true, when_false, value = code[at]
        if operation == 0x20:
            loaded = struct.unpack_from("<I", data, value)[0]
            at += 1
        elif operation == 0x06:
            return 0 if value == ALLOWED else value & 0xFFFF
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[operation]
            at += 1 + (when_true if holds else when_false)


CASES = [
    # What is called, its numbers on both architectures, its arguments, what comes of it.
    ("read", (0, 63), (0,), 0),
    ("write", (1, 64), (1,), 0),
    ("execve", (59, 221), (), 0),
    ("mount", (165, 40), (), errno.EPERM),
    ("bpf", (321, 280), (), errno.EPERM),
    ("keyctl", (250, 219), (), errno.EPERM),
    ("io_uring_setup", (425, 425), (), errno.EPERM),
    ("fork by clone", (56, 220), (0x11,), 0),
    ("thread by clone", (56, 220), (0x3D0F00,), 0),
    ("user namespace by clone", (56, 220), (0x10000011,), errno.EPERM),
    ("clone3", (435, 435), (), errno.ENOSYS),
    ("unshare of file handles", (272, 97), (0x400,), 0),
    ("unshare of users", (272, 97), (0x10000000,), errno.EPERM),
    ("unshare of time", (272, 97), (0x80,), errno.EPERM),
    ("internet socket", (41, 198), (2, 1, 0), 0),
    ("socket of files", (41, 198), (1, 1, 0), 0),
    ("packet socket", (41, 198), (17, 3, 0), errno.EAFNOSUPPORT),
    ("socket to the hypervisor", (41, 198), (40, 1, 0), errno.EAFNOSUPPORT),
    ("size of a terminal", (16, 29), (0, 0x5413), 0),
    ("typing into a terminal", (16, 29), (0, 0x5412), errno.EPERM),
    ("a call of the future", (999, 999), (), errno.ENOSYS),
]


@pytest.mark.parametrize(
    ("numbers", "arguments", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_filter_lets_programs_run_and_refuses_the_rest(
    numbers: tuple[int, int], arguments: tuple[int, ...], expected: int
) -> None:
    assert verdict(build("x86_64"), X86_64, numbers[0], *arguments) == expected
    assert verdict(build("aarch64"), AARCH64, numbers[1], *arguments) == expected


def test_calls_of_another_architecture_are_not_let_through() -> None:
    assert verdict(build("x86_64"), 0x40000003, 4) == errno.ENOSYS
    assert verdict(build("x86_64"), X86_64, 0x40000001) == errno.ENOSYS, "x32 has other numbers"


def test_a_machine_without_a_table_has_no_filter() -> None:
    assert build("riscv64") == b""
