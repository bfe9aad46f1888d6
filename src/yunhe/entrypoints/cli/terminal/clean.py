"""What others wrote, made safe for a terminal: no text of theirs moves the cursor, sets a title or reorders a line."""

_KEPT = {0x09, 0x0A}
_ORDER = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Marks that let a line read otherwise than it is."""
_UNSAFE = sorted({*range(0x20), *range(0x7F, 0xA0), *_ORDER, 0x2028, 0x2029} - _KEPT)
_REMOVED = dict.fromkeys(_UNSAFE)
_ESCAPED = {code: f"\\u{code:04x}" for code in _UNSAFE}


def clean(text: str) -> str:
    """Return *text* without control characters but tab and newline."""
    return text.translate(_REMOVED)


def clean_json(encoded: bytes) -> str:
    """Return JSON that says the same, with every control character in a string as an escape of JSON."""
    return encoded.decode().translate(_ESCAPED)
