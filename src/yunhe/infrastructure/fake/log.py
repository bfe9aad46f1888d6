"""An allocation's output, of which only the last part is kept."""

from yunhe.infrastructure.contract.model import LogChunk

CHUNK_BYTES = 64 * 1024


class Log:
    """Bytes with offsets that count from the first ever written."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()
        self._dropped_bytes = 0

    @property
    def total_bytes(self) -> int:
        """How much was ever written."""
        return self._dropped_bytes + len(self._kept)

    def write(self, data: bytes) -> None:
        """Append *data* and let go of what is over the limit."""
        self._kept += data
        excess = max(0, len(self._kept) - self._limit_bytes)
        del self._kept[:excess]
        self._dropped_bytes += excess

    def read(self, offset: int) -> LogChunk:
        """Return what is kept from *offset* on; the chunk starts later where that part is gone."""
        start = max(offset, self._dropped_bytes)
        begin = start - self._dropped_bytes
        return LogChunk(offset=start, data=bytes(self._kept[begin : begin + CHUNK_BYTES]))
