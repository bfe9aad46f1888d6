"""How far a task is kept apart from others and from its host, where that is not as usual."""

import ipaddress
import re

import msgspec

NETWORKS = ("", "none", "host")
RUNTIMES = ("", "sandboxed")
WHY_NOT = {
    "network": "its hosts cannot give a task a network of its own (yunhe pool show says why)",
    "host-network": "its owner does not allow it (--option allow=host-network)",
    "privileged": "its owner does not allow it (--option allow=privileged)",
    "python": "only hosts make Python environments; install in setup instead, or run in an image",
    "sandboxed": "its hosts have no working gVisor (yunhe pool show says why); install runsc there",
}
"""What an engine most likely lacks that does not permit what ``Confinement.needs`` names."""
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_LAST_PORT = 65_535


class Confinement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a task is kept apart, where that is not as usual."""

    network: str = ""
    """``none``: no network; ``host``: that of the host; else one of its own."""
    egress: tuple[str, ...] = ()
    """Blocks of addresses, with ``:PORT`` or ``:FIRST-LAST``, to which alone it may connect; empty: no list."""
    privileged: bool = False
    """Without the filter of system calls, with the host's devices."""
    runtime: str = ""
    """``sandboxed``: behind a kernel of its own; else whatever the engine runs such a task in."""

    def needs(self) -> tuple[str, ...]:
        """Return what an engine must permit for it."""
        own = self.network == "none" or bool(self.egress)
        asked = {
            "network": own,
            "host-network": self.network == "host",
            "privileged": self.privileged,
            "sandboxed": self.runtime == "sandboxed",
        }
        return tuple(name for name, wanted in asked.items() if wanted)


def is_block(text: str) -> bool:
    """Return whether *text* is ``192.0.2.0/24``, ``192.0.2.7``, ``192.0.2.7:443`` or ``192.0.2.7:8000-8100``."""
    block, colon, ports = text.partition(":")
    try:
        ipaddress.IPv4Network(block)
    except ValueError:
        return False
    found = _PORTS.fullmatch(ports)
    if not colon or found is None:
        return not colon
    first, last = int(found[1]), int(found[2] or found[1])
    return 0 < first <= last <= _LAST_PORT


def bounded(apart: Confinement | None, egress: tuple[str, ...] | None) -> Confinement | None:
    """Return *apart* within a project's policy: None: no policy; empty: no network; else these blocks alone.

    A task may ask for less than its project allows. What is beyond that is left out; see ``widening`` to refuse it.
    """
    if egress is None:
        return apart
    asked = apart or Confinement()
    if not egress or asked.network == "none":
        return Confinement(network="none")
    kept = tuple(block for block in asked.egress if is_within(block, egress)) if asked.egress else egress
    network = "" if kept else "none"
    return Confinement(network=network, egress=kept)


def widening(apart: Confinement | None, egress: tuple[str, ...] | None) -> tuple[tuple[str, str], ...]:
    """Return the fields of a task, with what they ask, that are beyond its project's policy."""
    if egress is None or apart is None:
        return ()
    beyond = tuple(("egress", block) for block in apart.egress if not is_within(block, egress))
    open_ways = {"network": apart.network == "host", "privileged": apart.privileged}
    asked = {"network": apart.network, "privileged": "true"}
    return (*((field, asked[field]) for field, is_open in open_ways.items() if is_open), *beyond)


def is_within(block: str, allowed: tuple[str, ...]) -> bool:
    """Return whether all that *block* says is in one of the blocks *allowed*."""
    return any(_covers(outer, block) for outer in allowed)


def _covers(outer: str, inner: str) -> bool:
    network, first, last = _parts(outer)
    narrow, narrow_first, narrow_last = _parts(inner)
    return narrow.subnet_of(network) and first <= narrow_first and narrow_last <= last


def _parts(block: str) -> tuple[ipaddress.IPv4Network, int, int]:
    """Return addresses and ports of a block; none said are all, 0 for what has no ports among them."""
    addresses, _, ports = block.partition(":")
    found = _PORTS.fullmatch(ports)
    first, last = (0, _LAST_PORT) if found is None else (int(found[1]), int(found[2] or found[1]))
    return ipaddress.IPv4Network(addresses), first, last
