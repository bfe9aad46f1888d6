"""Secrets are masked in every text that goes into a log: by value where the value is known, by form otherwise."""

import base64
import json
import re
import threading
import urllib.parse
from collections import OrderedDict

MASK = "***"
SHORTEST = 4
"""A shorter value would mask ordinary words, and protects nothing."""
MOST_VALUES = 20_000
"""How many spellings of known secrets are kept; the oldest is forgotten first."""

_NAMES = r"passw(?:or)?d|pwd|passphrase|secret|token|credentials?|(?:api|private|access|client)[_-]?key"
SENSITIVE_NAME = re.compile(rf"{_NAMES}|authorization|cookie", re.IGNORECASE)
_MAY_HOLD_ONE = re.compile(
    rf"{_NAMES}|PRIVATE KEY|y[kp]_|gAAAA|yv2\.|eyJ|authorization|cookie|bearer|basic|://", re.IGNORECASE
)
_QUOTED = (
    r"b?'(?:[^'\\]|\\.){0,4000}'|b?\"(?:[^\"\\]|\\.){0,4000}\"|(\\+['\"])(?s:.){0,4000}?\2|b?['\"].*|\S+"
)
_FORMS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"), MASK),
    (re.compile(r"(?<![A-Za-z0-9])(y[kp]_)[\w-]{16,}"), rf"\1{MASK}"),  # API keys of users and of plugins
    (re.compile(r"\b(?:gAAAA|yv2\.[0-9a-f]{8}\.)[\w-]{16,}={0,2}"), MASK),  # what the vault has sealed
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), MASK),  # JSON Web Tokens
    (re.compile(r"\b(authorization|cookie)\b(\W{1,6})[^\r\n]+", re.IGNORECASE), rf"\1\2{MASK}"),
    (re.compile(r"\b(bearer|basic)\s{1,3}[\w.~+/=-]{4,}", re.IGNORECASE), rf"\1 {MASK}"),
    # An address's password may hold anything but white space, up to the last @.
    (re.compile(r"\b([a-z][a-z0-9+.-]{0,20}://[^\s:/@]{0,200}):\S{1,500}@", re.IGNORECASE), rf"\1:{MASK}@"),
    (
        re.compile(rf"((?:{_NAMES})[\\'\"]{{0,3}}\s{{0,3}}[:=]\s{{0,3}})(?:{_QUOTED})", re.IGNORECASE),
        rf"\1{MASK}",
    ),
)

_by_head: dict[str, list[str]] = {}
"""Known values by their first characters, so that a text is searched once, however many there are."""
_order: OrderedDict[str, None] = OrderedDict()
_lock = threading.Lock()


def keep_out(value: str) -> None:
    """Mask *value* in every later line, also quoted, percent-encoded and in base64, and each of its own lines."""
    lines = value.splitlines() if "\n" in value else []
    for text in {value, value.strip(), *(line.strip() for line in lines)}:
        if len(text) >= SHORTEST:
            _remember(
                {
                    text,
                    repr(text)[1:-1],
                    json.dumps(text)[1:-1],
                    json.dumps(text, ensure_ascii=False)[1:-1],
                    urllib.parse.quote(text, safe="", errors="replace"),
                    urllib.parse.quote_plus(text, errors="replace"),
                    base64.b64encode(text.encode(errors="replace")).decode(),
                }
            )


def keep_out_password_of(url: str) -> None:
    """Mask the password of a database's address, as it is written there and as it is sent."""
    password = urllib.parse.urlsplit(url).password or ""
    keep_out(password)
    keep_out(urllib.parse.unquote(password))


def redact(text: str) -> str:
    """Return *text* with every secret replaced by ``***``."""
    text = _without_known(text)
    if _MAY_HOLD_ONE.search(text):
        for form, mask in _FORMS:
            text = form.sub(mask, text)
    return text


def _remember(spellings: set[str]) -> None:
    with _lock:
        for spelling in spellings - _order.keys():
            _by_head.setdefault(spelling[:SHORTEST], []).append(spelling)
            _order[spelling] = None
        while len(_order) > MOST_VALUES:
            oldest, _ = _order.popitem(last=False)
            alike = _by_head[oldest[:SHORTEST]]
            alike.remove(oldest)
            if not alike:
                del _by_head[oldest[:SHORTEST]]


def _without_known(text: str) -> str:
    """Mask known values; where two overlap, all that either covers."""
    if not _by_head:
        return text
    parts: list[str] = []
    kept_from = masked_to = 0
    for start in range(len(text) - SHORTEST + 1):
        ends = [
            start + len(value)
            for value in _by_head.get(text[start : start + SHORTEST], ())
            if text.startswith(value, start)
        ]
        if ends:
            if start >= masked_to:
                parts += [text[kept_from:start], MASK]
            kept_from = masked_to = max(masked_to, *ends)
    return "".join([*parts, text[kept_from:]])
