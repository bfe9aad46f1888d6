"""The network of a task: a namespace with one link to the host, by which it gets out as far as it is let.

The daemon claims a range of addresses for its agent and keeps one table of packet filter rules in the host's own
network. Each task has a link whose far end lies in the task's namespace: when that goes, for whatever reason, the link
goes too. Every name here begins with that of the agent's range, so agents on one machine do not meet.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import ipaddress
import os
import shutil
import socket
import struct
import subprocess
from typing import Any, Callable, NamedTuple

from yunhe.agent.runs.environment import PATH
from yunhe.agent.runtimes.guards import no_namespaces
from yunhe.agent.runtimes.namespaces import MS_BIND, MS_NO_DEVICES, MS_NO_SETUID, join_network, mount

HOST, NONE = "host", "none"
"""Networks a task may ask for by name; without a name it gets one of its own with a way out."""
CLAIMS = "/run/yunhe-networks"
FORWARDING = "/proc/sys/net/ipv4/ip_forward"
RESOLVER = "/etc/resolv.conf"
_UPSTREAM = "/run/systemd/resolve/resolv.conf"
_RANGES = 128
_TASKS = 1000
_ALL = int(ipaddress.ip_address("198.18.0.0"))
"""Reserved for tests of networks, so nobody's own; cut into as many ranges of 1024 addresses as there can be agents."""
_SET_FLAGS, _UP = 0x8914, 0x1
_SET_ADDRESS, _SET_MASK, _ADD_ROUTE = 0x8916, 0x891C, 0x890B
_TO_HOST, _BY_GATEWAY = 0x5, 0x3
_WITHIN_S = 10.0

_TABLE = """
table inet {name} {{
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "{links}*" meta nfproto ipv6 drop
    iifname "{links}*" ip saddr != {range} drop
    iifname "{links}*" oifname "{links}*" reject
    iifname "{links}*" ip daddr {{ {resolvers} }} meta l4proto {{ tcp, udp }} th dport 53 accept
    iifname "{links}*" ip daddr {{ 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16 }} reject
    oifname "{links}*" ct state established,related accept
    oifname "{links}*" drop
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname "{links}*" ct state established,related accept
    iifname "{links}*" reject
  }}
  chain out {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {range} oifname != "{links}*" masquerade
  }}
}}
"""


class Link(NamedTuple):
    """The link of one task."""

    name: str
    address: str
    gateway: str


class TaskNetworks:
    """What the daemon of one agent keeps for the networks of its tasks."""

    def __init__(self, root: str, *, forwarding: str) -> None:
        self._number = -1
        self._last = 0
        self.resolver = ""
        self.missing = no_namespaces() or _why_not(forwarding)
        """Why tasks share the host's network; empty where each has its own."""
        if not self.missing:
            try:
                self._number = _claim(root)
                self._write_table()
            except OSError as fault:
                self.missing = f"the packet filter could not be set up: {fault}"

    def _write_table(self) -> None:
        self.resolver = resolver_text()
        name = f"yunhe_{self._number}"
        resolvers = [word for word in _nameservers(self.resolver) if ":" not in word] or ["192.0.2.0"]
        text = _TABLE.format(
            name=name, links=self._links, range=f"{self._address(0)}/22", resolvers=", ".join(resolvers)
        )
        run(["nft", "-f", "-"], f"table inet {name}\ndelete table inet {name}\n{text}")

    @property
    def _links(self) -> str:
        return f"yh{self._number}-"

    def _address(self, index: int) -> str:
        return str(ipaddress.ip_address(_ALL + self._number * 1024 + index))

    def order(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the network that the task of a launch body gets."""
        wanted = body.get("network", "")
        if wanted == HOST or no_namespaces() or (self.missing and not wanted):
            return {"mode": HOST}
        if wanted == NONE:
            return {"mode": NONE}
        egress = body.get("egress", [])
        return {"mode": "", "link": list(self._next_link()), "egress": egress, "resolver": self.resolver}

    def refusal(self, body: dict[str, Any]) -> str:
        """Return why the network that a launch body asks for cannot be had here; empty if it can."""
        if body.get("network", "") == NONE:
            return no_namespaces()
        return self.missing if body.get("egress") else ""

    def _next_link(self) -> Link:
        """Return a link that no task has."""
        taken = {name for _, name in socket.if_nameindex()}
        for _ in range(_TASKS):
            self._last = (self._last + 1) % _TASKS
            if f"{self._links}{self._last}" not in taken:
                break
        return Link(f"{self._links}{self._last}", self._address(self._last + 2), self._address(1))

    def remove(self) -> None:
        """Remove what this agent keeps, if none of its tasks has a link any more."""
        if self._number < 0 or any(name.startswith(self._links) for _, name in socket.if_nameindex()):
            return
        _give_up(self._number)
        self._number = -1


def _why_not(forwarding: str) -> str:
    if forwarding == "off":
        return "the pool's option forwarding is off"
    lacking = [name for name in ("ip", "nft") if find(name) is None]
    if lacking:
        return f"the host has no command {' and no '.join(lacking)}"
    if forwarding == "on":
        _write(FORWARDING, "1")
    with open(FORWARDING) as file:
        if file.read().strip() != "1":
            return "the host does not forward packets: set net.ipv4.ip_forward=1, or the pool's option forwarding=on"
    return ""


def _claim(root: str) -> int:
    """Return the number of the range that is the agent's of *root*, and remove what agents left whose root is gone."""
    os.makedirs(CLAIMS, 0o755, exist_ok=True)
    for name in os.listdir(CLAIMS):
        with open(f"{CLAIMS}/{name}") as file:
            owner, _, where = file.read().partition("\n")
        if owner == root:
            return int(name)
        if where == _own_network() and not os.path.isdir(
            owner
        ):  # its table can only be removed where it lies
            _give_up(int(name))
    first = int.from_bytes(hashlib.sha256(root.encode()).digest()[:4], "big")
    for step in range(_RANGES):
        number = (first + step) % _RANGES
        try:
            handle = os.open(f"{CLAIMS}/{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        os.write(handle, f"{root}\n{_own_network()}".encode())
        os.close(handle)
        return number
    raise OSError(f"all {_RANGES} ranges of addresses are taken")


def _own_network() -> str:
    return os.readlink("/proc/self/ns/net")


def _give_up(number: int) -> None:
    with contextlib.suppress(OSError):  # it may lie in another network, or never have been
        run(["nft", "delete", "table", "inet", f"yunhe_{number}"], "")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{CLAIMS}/{number}")


class TaskNetwork:
    """The network of one task, by the part of its order that ``TaskNetworks.order`` made."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.apart: bool = order.get("mode", HOST) != HOST
        """Whether it has a network namespace."""
        self.link = Link(*order["link"]) if "link" in order else None
        self._egress: list[list[str]] = order.get("egress", [])
        self.resolver: str = order.get("resolver", "")

    def connect(self, first: int) -> None:
        """Give the network of process *first* its link to ours, and its rules; both end with that network."""
        if self.link is None:
            return
        link = self.link
        ours = [
            f"link add name {link.name} type veth peer name eth0 netns {first}",
            f"link set {link.name} addrgenmode none",
            f"address add {link.gateway}/32 dev {link.name}",
            f"link set {link.name} up",
            f"route add {link.address}/32 dev {link.name}",
        ]
        run(["ip", "-batch", "-"], "\n".join(ours))
        _in_network_of(first, lambda: _set_up(link))
        if self._egress:
            run(["nft", "-f", "-"], _rules(self._egress, self.resolver), network_of=first)

    def carried(self) -> dict[str, int]:
        """Return the bytes its link has carried so far, as meters; nothing without one."""
        return {} if self.link is None else counters({self.link.name}).get(self.link.name, {})


def _in_network_of(first: int, act: Callable[[], None]) -> None:
    """Have *act* done by a process of ours in the network of process *first*; raise what kept it from it."""
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            join_network(first)
            act()
        except OSError as fault:
            os.write(told, f"{fault.errno or 0} {fault.strerror or fault}".encode()[:400])
        finally:
            os._exit(0)
    os.close(told)
    said = os.read(heard, 400).decode(errors="replace")
    os.close(heard)
    os.waitpid(pid, 0)
    if said:
        number, _, text = said.partition(" ")
        raise OSError(int(number), f"the task's end of its link could not be set up: {text}")


def _set_up(link: Link) -> None:
    """Give the calling process's end of *link* its address and the way out."""
    name, device = b"eth0", ctypes.create_string_buffer(b"eth0")
    nowhere, one = _socket_address("0.0.0.0"), _socket_address("255.255.255.255")
    gateway = _socket_address(link.gateway)

    def route(to: bytes, by: bytes, mask: bytes, flags: int) -> bytes:
        return struct.pack(
            "@L16s16s16sHhLPhPLLH", 0, to, by, mask, flags, 0, 0, 0, 0, ctypes.addressof(device), 0, 0, 0
        )

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        for request, address in ((_SET_ADDRESS, _socket_address(link.address)), (_SET_MASK, one)):
            fcntl.ioctl(line, request, struct.pack("16s16s8x", name, address))
        fcntl.ioctl(line, _SET_FLAGS, struct.pack("16sh22x", name, _UP))
        fcntl.ioctl(line, _ADD_ROUTE, route(gateway, nowhere, one, _TO_HOST))
        fcntl.ioctl(line, _ADD_ROUTE, route(nowhere, gateway, nowhere, _BY_GATEWAY))


def _socket_address(address: str) -> bytes:
    return struct.pack("@HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))


def close_ipv6() -> None:
    """Leave IPv6 to the loopback of the calling process's network, and start that."""
    for name, value in (("all", "1"), ("default", "1"), ("lo", "0")):
        path = f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6"
        if os.path.exists(path):
            _write(path, value)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        fcntl.ioctl(line, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


def _rules(egress: list[list[str]], resolver: str) -> str:
    """Return a table with a chain for each list: a packet must be accepted by every one."""
    chains: list[str] = []
    resolvers = [word for word in _nameservers(resolver) if ":" not in word]
    for index, wanted in enumerate(egress):
        lines = [f"type filter hook output priority {index}; policy accept;", "oifname lo accept"]
        lines.append("ct state established,related accept")
        lines += [f"ip daddr {word} meta l4proto {{ tcp, udp }} th dport 53 accept" for word in resolvers]
        for entry in wanted:
            block, _, port = entry.partition(":")
            lines.append(f"ip daddr {block} {f'th dport {port} ' if port else ''}accept")
        chains.append(f"chain out{index} {{\n" + "\n".join([*lines, "reject"]) + "\n}")
    return "table inet egress {\n" + "\n".join(chains) + "\n}\n"


def counters(names: set[str]) -> dict[str, dict[str, int]]:
    """Return the bytes each of the links has carried, as meters of its task."""
    found: dict[str, dict[str, int]] = {}
    with open("/proc/net/dev") as file:
        for line in file:
            name, _, numbers = line.partition(":")
            if name.strip() in names:
                fields = numbers.split()
                found[name.strip()] = {"received_bytes": int(fields[8]), "sent_bytes": int(fields[0])}
    return found


def hide_sockets(resolver: str) -> None:
    """Cover ``/run``, where services of the host listen, and have names resolved as *resolver* says."""
    target = os.path.realpath(RESOLVER)
    mount("tmpfs", "/run", "tmpfs", MS_NO_SETUID | MS_NO_DEVICES, "mode=0755,size=1m")
    if target.startswith("/run/"):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _write(target, resolver, os.O_CREAT)
    elif os.path.exists(target):
        _write("/run/resolv.conf", resolver, os.O_CREAT)
        mount("/run/resolv.conf", target, "", MS_BIND)


def resolver_text() -> str:
    """Return how names are resolved, for a network that does not have the host's loopback."""
    for path in (RESOLVER, _UPSTREAM):
        try:
            with open(path) as file:
                text = file.read()
        except OSError:
            continue
        if any(not word.startswith(("127.", "::1")) for word in _nameservers(text)):
            return text
    return ""


def _nameservers(text: str) -> list[str]:
    lines = (line.split() for line in text.splitlines())
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]


def find(name: str) -> str | None:
    """Return where a command of the host lies."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{PATH}")


def run(command: list[str], said: str, *, network_of: int = 0) -> None:
    """Run a command of the host to its end, in the network of a process if told so; raise what it complains of."""
    program = find(command[0]) or command[0]
    done = subprocess.run(
        [program, *command[1:]],
        input=said.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_WITHIN_S,
        check=False,
        preexec_fn=(lambda: join_network(network_of)) if network_of else None,
    )
    if done.returncode != 0:
        words = done.stdout.decode(errors="replace").strip().splitlines() or [
            f"it ended with {done.returncode}"
        ]
        raise OSError(f"{command[0]}: {words[0][:200]}")


def _write(path: str, value: str, flags: int = 0) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o644)
    try:
        os.write(handle, value.encode())
    finally:
        os.close(handle)
