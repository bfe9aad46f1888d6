"""The proxy that this machine's environment names for a server: ``HTTPS_PROXY``, ``NO_PROXY`` and the like."""

from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from yunhe.entrypoints.client.transport import Address
from yunhe.kernel.errors import InvalidInputError


class Proxy(NamedTuple):
    """A machine that passes calls on."""

    host: str
    port: int
    headers: dict[str, str]
    """What it wants to know of us."""


def proxy_for(address: Address) -> Proxy | None:
    """Return the proxy to reach *address* through; None: it is reached directly."""
    if address.is_loopback():
        return None  # a proxy has nothing to do with this machine's own server
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - not for a server of this machine

    parts = address.parts()
    proxies = getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    if not named or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise InvalidInputError(
            f"{named!r} is not a proxy that the command line speaks with.",
            remedy="Name one like http://host:3128, or add the server to NO_PROXY.",
        )
    return Proxy(proxy.hostname, proxy.port or 80, _credentials(proxy))


def _credentials(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    from base64 import b64encode  # noqa: PLC0415 - few proxies ask

    who = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(who.encode()).decode()}"}
