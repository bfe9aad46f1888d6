"""How far a task is kept apart from others and from its host, where that is not as usual."""

import ipaddress
import re

import msgspec

NETWORKS = ("", "none", "host")
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

    def needs(self) -> tuple[str, ...]:
        """Return what an engine must permit for it."""
        own = self.network == "none" or bool(self.egress)
        asked = {"network": own, "host-network": self.network == "host", "privileged": self.privileged}
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
