"""The system calls a task may not use: a filter for the kernel, built from a table for each architecture.

A task keeps what ordinary programs need. It loses what changes the system, makes namespaces, or reaches parts of the
kernel that only administrators need; and every call that is newer than this table, which programs take for an old kernel.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import NamedTuple

_SET_MODE_FILTER = 1
_SPEC_ALLOW = 4
"""Without it, older kernels slow a filtered process down for the sake of browsers."""
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_LOAD, _EQUAL, _GREATER_OR_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_X32 = 0x40000000
_NEWEST = 461
"""The last call that was known when the table was made; numbers from 424 on are the same everywhere."""
_NAMESPACES = 0x7E020080
"""Every flag of ``clone`` and ``unshare`` that makes a namespace."""
_CLONE_NAMESPACES = 0x7E020000
"""The same without that of time, whose bit belongs to the exit signal in ``clone``."""
_FAMILIES = (1, 2, 10, 16)
"""Sockets a task may have: of files, of both internet protocols, and netlink, by which programs learn addresses."""
_TERMINAL_REQUESTS = (0x5412, 0x541C)
"""Writing into the input of a terminal: how a task would type into the shell of whoever runs a command beside it."""

_DENIED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "_sysctl": (156, None),
    "umount2": (166, 39),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""The number of each call on x86_64 and on aarch64, where it has one."""


class _Architecture(NamedTuple):
    audit: int
    column: int
    clone: int
    unshare: int
    socket: int
    socketpair: int
    ioctl: int
    clone3: int
    seccomp: int


_ARCHITECTURES = {
    "x86_64": _Architecture(0xC000003E, 0, 56, 272, 41, 53, 16, 435, 317),
    "aarch64": _Architecture(0xC00000B7, 1, 220, 97, 198, 199, 29, 435, 277),
}


def _instruction(code: int, value: int, when_true: int = 0, when_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, when_true, when_false, value)


def _refuse(number: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | number)


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, offset)


def _on_call(number: int, then: list[bytes]) -> list[bytes]:
    """Run *then*, which must return, for one call; the number of the call stays loaded for those that follow."""
    return [_instruction(_EQUAL, number, 0, len(then)), *then]


def _unless_any_of(argument: int, values: tuple[int, ...], *, found: bytes, otherwise: bytes) -> list[bytes]:
    """Return *found* where an argument is one of *values*, else *otherwise*."""
    tests = [_instruction(_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)]
    return [_load(_FIRST_ARGUMENT_AT + 8 * argument), *tests, otherwise, found]


def _unless_flags(flags: int) -> list[bytes]:
    """Refuse where the first argument has any of *flags*."""
    allow, refuse = _instruction(_RETURN, _ALLOW), _refuse(errno.EPERM)
    return [_load(_FIRST_ARGUMENT_AT), _instruction(_ANY_BIT, flags, 1, 0), allow, refuse]


def build(machine: str) -> bytes:
    """Return the filter for an architecture, as ``os.uname`` calls it; empty where there is no table for it."""
    known = _ARCHITECTURES.get(machine)
    if known is None:
        return b""
    allow, unknown = _instruction(_RETURN, _ALLOW), _refuse(errno.ENOSYS)
    no_family = _refuse(errno.EAFNOSUPPORT)
    sockets = _unless_any_of(0, _FAMILIES, found=allow, otherwise=no_family)
    terminals = _unless_any_of(1, _TERMINAL_REQUESTS, found=_refuse(errno.EPERM), otherwise=allow)
    program = [
        _load(_ARCHITECTURE_AT),
        _instruction(_EQUAL, known.audit, 1, 0),
        unknown,
        _load(_NUMBER_AT),
        *([_instruction(_GREATER_OR_EQUAL, _X32, 0, 1), unknown] if machine == "x86_64" else []),
        _instruction(_GREATER_OR_EQUAL, _NEWEST + 1, 0, 1),
        unknown,
        *_on_call(known.clone3, [unknown]),  # its flags lie in memory, where no filter can look
        *_on_call(known.clone, _unless_flags(_CLONE_NAMESPACES)),
        *_on_call(known.unshare, _unless_flags(_NAMESPACES)),
        *_on_call(known.socket, sockets),
        *_on_call(known.socketpair, sockets),
        *_on_call(known.ioctl, terminals),
    ]
    denied = [numbers[known.column] for numbers in _DENIED.values()]
    for number in denied:
        if number is not None:
            program += _on_call(number, [_refuse(errno.EPERM)])
    return b"".join([*program, allow])


FILTER = build(os.uname().machine)
"""The filter for this machine; empty where there is none. Made once, for every task that is forked."""
_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def install() -> None:
    """Filter the system calls of the calling process and of all it will start; it must have given up new privileges."""
    text = ctypes.create_string_buffer(FILTER, len(FILTER))
    program = _Program(len(FILTER) // 8, ctypes.cast(text, ctypes.c_void_p))
    number = _ARCHITECTURES[os.uname().machine].seccomp
    for flags in (_SPEC_ALLOW, 0):
        if _libc.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(program)) == 0:
            return
    raise OSError(ctypes.get_errno(), "the kernel does not take the filter of system calls")
