"""Attempts to leave a task, as a table; run as a program, it makes them and says which reached their aim.

It is given to tasks as a step, so it needs nothing but the standard library. ``python isolation_probes.py JSON`` takes what
lies around the task (paths, addresses, process IDs) and prints a line for each probe: its name and ``reached`` or
``refused``. The same program run as root outside a task is the control: there every probe must reach its aim.
"""

import ctypes
import errno
import json
import os
import platform
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Around = dict[str, Any]
"""What lies around the task: paths, addresses, process IDs."""
Probe = Callable[[Around], bool]
REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT)

_libc = ctypes.CDLL(None, use_errno=True)
_X86 = platform.machine() == "x86_64"

SYSTEM_CALLS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    # Name: numbers on x86_64 and aarch64, arguments that do no harm where the call is let through.
    "acct": (163, 89, (1,)),
    "add_key": (248, 217, (0, 0, 0, 0, 0)),
    "bpf": (321, 280, (999, 0, 0)),
    "chroot": (161, 51, (1,)),
    "clock_adjtime": (305, 266, (0, 1)),
    "clock_settime": (227, 112, (0, 1)),
    "delete_module": (176, 106, (1, 0)),
    "fanotify_init": (300, 262, (0xFFFFFF, 0)),
    "finit_module": (313, 273, (-1, 0, 0)),
    "fsconfig": (431, 431, (-1, 0, 0, 0, 0)),
    "fsmount": (432, 432, (-1, 0, 0)),
    "fsopen": (430, 430, (0, 0)),
    "fspick": (433, 433, (-1, 0, 0)),
    "init_module": (175, 105, (0, 0, 0)),
    "io_uring_setup": (425, 425, (0, 0)),
    "io_uring_enter": (426, 426, (-1, 0, 0, 0, 0, 0)),
    "io_uring_register": (427, 427, (-1, 0, 0, 0)),
    "kcmp": (312, 272, (0, 0, 99, 0, 0)),
    "kexec_load": (246, 104, (0, 99999, 0, 0)),
    "keyctl": (250, 219, (9999, 0, 0, 0, 0)),
    "mount": (165, 40, (1, 1, 1, 0, 0)),
    "mount_setattr": (442, 442, (-1, 1, 0, 0, 0)),
    "move_mount": (429, 429, (-1, 1, -1, 1, 0)),
    "name_to_handle_at": (303, 264, (-1, 1, 0, 0, 0)),
    "open_by_handle_at": (304, 265, (-1, 1, 0)),
    "open_tree": (428, 428, (-1, 1, 0)),
    "perf_event_open": (298, 241, (1, 0, -1, -1, 0)),
    "pivot_root": (155, 41, (1, 1)),
    "quotactl_fd": (443, 443, (-1, 0, 0, 0)),
    "reboot": (169, 142, (1, 2, 3, 0)),
    "request_key": (249, 218, (0, 0, 0, 0)),
    "setdomainname": (171, 162, (1, 999999)),
    "sethostname": (170, 161, (1, 999999)),
    "setns": (308, 268, (-1, 0)),
    "settimeofday": (164, 170, (1, 0)),
    "swapoff": (168, 225, (1,)),
    "swapon": (167, 224, (1, 0)),
    "syslog": (103, 116, (99, 0, 0)),
    "umount2": (166, 39, (1, 0)),
    "userfaultfd": (323, 282, (0xFFFF,)),
    "clone3": (435, 435, (0, 0)),
    "unshare(user)": (272, 97, (0x10000000,)),
    "unshare(files)": (272, 97, (0x00020000,)),
    "unshare(network)": (272, 97, (0x40000000,)),
    "unshare(processes)": (272, 97, (0x20000000,)),
    "unshare(ipc)": (272, 97, (0x08000000,)),
    "unshare(names)": (272, 97, (0x04000000,)),
    "unshare(cgroups)": (272, 97, (0x02000000,)),
    "unshare(time)": (272, 97, (0x00000080,)),
}

FAMILIES = {
    "packet": (17, 3),
    "alg": (38, 5),
    "vsock": (40, 1),
    "key": (15, 3),
    "raw": (2, 3),
    "raw6": (10, 3),
}
"""Address families and kinds of sockets that no task needs."""
LACKING = ("key", "vsock")
"""Families that a kernel may be without: there is nothing to keep anybody from."""

OPENED_FOR_WRITING = {
    "write /etc/passwd": "/etc/passwd",
    "write /etc/shadow": "/etc/shadow",
    "write /etc/ld.so.preload's folder": "/etc/.yunhe-probe",
    "write /usr": "/usr/.yunhe-probe",
    "write /usr/local": "/usr/local/.yunhe-probe",
    "write /usr/bin": "/usr/bin/.yunhe-probe",
    "write /bin": "/bin/.yunhe-probe",
    "write /lib": "/lib/.yunhe-probe",
    "write /": "/.yunhe-probe",
    "write /root": "/root/.yunhe-probe",
    "write /opt": "/opt/.yunhe-probe",
    "write /var/lib": "/var/lib/.yunhe-probe",
    "write /var/log": "/var/log/.yunhe-probe",
    "write /var/spool": "/var/spool/.yunhe-probe",
    "write /usr/lib": "/usr/lib/.yunhe-probe",
    "write /usr/share": "/usr/share/.yunhe-probe",
    "write /usr/sbin": "/usr/sbin/.yunhe-probe",
    "write /sbin": "/sbin/.yunhe-probe",
    "write /srv": "/srv/.yunhe-probe",
    "write /mnt": "/mnt/.yunhe-probe",
    "write /media": "/media/.yunhe-probe",
    "write /boot": "/boot/.yunhe-probe",
    "write /etc/profile.d": "/etc/profile.d/.yunhe-probe",
    "write /etc/default": "/etc/default/.yunhe-probe",
    "write /var/cache": "/var/cache/.yunhe-probe",
    "write /run": "/run/.yunhe-probe",
    "write a folder of the system that is open to all": "{open_folder}/.yunhe-probe",
    "write a kernel setting": "/proc/sys/kernel/domainname",
    "write a setting of virtual memory": "/proc/sys/vm/swappiness",
    "write the core pattern": "/proc/sys/kernel/core_pattern",
    "write a network setting": "/proc/sys/net/ipv4/ip_default_ttl",
    "write sysrq": "/proc/sysrq-trigger",
    "write the group's memory limit": "{memory_limit}",
    "write the group's cpu limit": "{cpu_limit}",
    "join another group": "{other_group}",
    "write the claim of the run": "{claim}",
    "write the exit record of the run": "{exit_record}",
    "write the log of the run": "{log_file}",
    "write the scripts of the run": "{step}",
}
OPENED_FOR_READING = {
    "read shadow passwords": "/etc/shadow",
    "read the kernel's memory": "/proc/kcore",
    "read a secret in the host's /tmp": "{host_tmp}",
    "read a secret in the host's /var/tmp": "{host_var_tmp}",
    "read a secret in the host's /dev/shm": "{host_shm}",
    "read another run's directory": "{other_note}",
    "read another run's log": "{other_log}",
    "read another run's claim": "{other_claim}",
    "read the agent's journal": "{journal}",
    "read the agent's users": "{users}",
    "read the disk itself": "{disk}",
    "read the kernel's messages": "/dev/kmsg",
    "read the environment of another process": "/proc/{other_pid}/environ",
    "read the memory of another process": "/proc/{other_pid}/mem",
    "read the command line of another process": "/proc/{other_pid}/cmdline",
    "read the command line of the host's first process": "/proc/{host_pid}/cmdline",
}
DEVICES = {
    "open /dev/fuse": "fuse",
    "open /dev/net/tun": "net/tun",
    "open /dev/kvm": "kvm",
    "open /dev/mem": "mem",
}
"""Devices of the host; a host may be without some."""


def _called(number: int, arguments: tuple[int, ...]) -> bool:
    """Make a system call in a child, which it may change; return whether the kernel took it up."""
    pid = os.fork()
    if pid == 0:
        ctypes.set_errno(0)
        done = _libc.syscall(number, *arguments)
        os._exit(0 if done >= 0 else ctypes.get_errno())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) not in REFUSALS


def _opens(path: str, flags: int) -> bool:
    try:
        existed = Path(path).exists()
        os.close(os.open(path, flags | os.O_NOCTTY | os.O_NONBLOCK, 0o600))
        if not existed:
            Path(path).unlink()
    except OSError:
        return False
    return True


def _has_socket(family: int, kind: int) -> bool:
    try:
        socket.socket(family, kind).close()
    except OSError:
        return False
    return True


def _lists(path: str, wanted: str) -> bool:
    try:
        return any(found.name == wanted for found in Path(path).iterdir())
    except OSError:
        return False


def _signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _attaches(pid: int) -> bool:
    """Attach to a process as a debugger does, and leave it again."""
    attached = _libc.ptrace(16, pid, 0, 0) == 0
    if attached:
        os.waitpid(pid, 0)
        _libc.ptrace(17, pid, 0, 0)
    return attached


def _has_shared_segment(key: int) -> bool:
    return _libc.shmget(key, 0, 0) >= 0


def _connects_abstract(name: str) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect("\0" + name)
    except OSError:
        return False
    return True


def _connects(address: str, port: int) -> bool:
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as line:
            line.settimeout(0.7)
            line.connect((address, port))
            return line.recv(5) == b"hello"
    except OSError:
        return False


def _hears_datagram(address: str, port: int) -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.settimeout(0.7)
            line.sendto(b"?", (address, port))
            return line.recv(5) == b"hello"
    except OSError:
        return False


def _makes_setuid_work(around: Around) -> bool:
    """Run a program that is set to change its user: whether it does is the question."""
    path = around["setuid_program"]
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1)
        try:
            if os.geteuid() == 0:
                os.setresuid(65534, 65534, 65534)  # the control: an ordinary user outside a task
            os.execv(path, [path, "-u"])
        finally:
            os._exit(1)
    os.close(writer)
    said = os.read(reader, 100)
    os.waitpid(pid, 0)
    return said.strip() == b"0"


def _makes_device(around: Around) -> bool:
    path = Path(around["scratch"]) / "device"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 8))
        os.close(os.open(path, os.O_RDONLY))
        path.unlink()
    except OSError:
        return False
    return True


def _becomes(_around: Around) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            os.setuid(12345)
        finally:
            os._exit(0 if os.geteuid() == 12345 else 1)
    return os.waitpid(pid, 0)[1] == 0


def _call_probe(name: str) -> Probe:
    x86, arm, arguments = SYSTEM_CALLS[name]
    return lambda _around: _called(x86 if _X86 else arm, arguments)


def _open_probe(path: str, flags: int) -> Probe:
    return lambda around: _opens(path.format_map(around), flags)


PROBES: dict[str, Probe] = {
    **{f"call {name}": _call_probe(name) for name in SYSTEM_CALLS},
    **{
        f"socket {name}": (lambda _around, wanted=wanted: _has_socket(*wanted))
        for name, wanted in FAMILIES.items()
    },
    **{name: _open_probe(path, os.O_WRONLY | os.O_CREAT) for name, path in OPENED_FOR_WRITING.items()},
    **{name: _open_probe(path, os.O_RDONLY) for name, path in OPENED_FOR_READING.items()},
    **{name: _open_probe(f"/dev/{path}", os.O_RDWR) for name, path in DEVICES.items()},
    "see the host's processes": lambda around: _lists("/proc", str(around["host_pid"])),
    "see the processes of another run": lambda around: _lists("/proc", str(around["other_pid"])),
    "see the directories of other runs": lambda around: _lists(around["runs"], around["other_run"]),
    "signal the host's processes": lambda around: _signals(around["host_pid"]),
    "signal the processes of another run": lambda around: _signals(around["other_pid"]),
    "debug a process of another run": lambda around: _attaches(around["other_pid"]),
    "attach the host's shared memory": lambda around: _has_shared_segment(around["segment_key"]),
    "become root by a setuid program": _makes_setuid_work,
    "make a device": _makes_device,
    "become another user": _becomes,
}
NETWORK: dict[str, Probe] = {
    "connect to an abstract socket of the host": lambda a: _connects_abstract(a["abstract"]),
    "reach the host's loopback": lambda a: _connects("127.0.0.1", a["port"]),
    "reach the host's loopback, another address of it": lambda a: _connects("127.0.0.53", a["port"]),
    "reach the host's loopback over IPv6": lambda a: _connects("::1", a["port"]),
    "reach the host's loopback by datagram": lambda a: _hears_datagram("127.0.0.1", a["port"]),
    "reach the host by its address": lambda a: _connects(a["host"], a["port"]),
    "reach the host by its other address": lambda a: _connects(a["host_inside"], a["port"]),
    "reach the host's end of the task's link": lambda a: _connects(a["gateway"], a["port"]),
    "reach the host's end of the task's link by datagram": lambda a: _hears_datagram(a["gateway"], a["port"]),
    "reach the metadata service": lambda a: _connects("169.254.169.254", a["port"]),
    "reach the metadata service by datagram": lambda a: _hears_datagram("169.254.169.254", a["port"]),
    "reach a link-local address": lambda a: _connects("169.254.7.7", a["port"]),
    "reach a task of another project": lambda a: _connects(a["other_task"], a["other_port"]),
}


def run(around: Around) -> dict[str, bool]:
    """Make every probe for which there is what it needs; return which reached their aim."""
    chosen = {**PROBES, **(NETWORK if "port" in around else {})}
    found: dict[str, bool] = {}
    for name, probe in chosen.items():
        try:
            found[name] = probe(around)
        except KeyError:
            continue  # there is no such thing around this task
    return found


if __name__ == "__main__":
    for name, reached in run(json.loads(sys.argv[1])).items():
        print(f"{name}\t{'reached' if reached else 'refused'}")
