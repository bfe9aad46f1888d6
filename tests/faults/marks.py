"""Failpoints as a campaign sees them: spent until armed, and spent again once one has fired."""

from collections.abc import Iterable
from pathlib import Path


class Marks:
    """The folder in which a failpoint that fires leaves its mark; where a mark lies already, nothing fires."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        folder.mkdir()
        self._folder = folder
        self._names = tuple(names)
        for name in self._names:
            (folder / name).touch()

    def environment(self) -> dict[str, str]:
        return {"YUNHE_FAILPOINT": ",".join(self._names), "YUNHE_FAILPOINT_DIR": str(self._folder)}

    def arm(self, name: str) -> None:
        (self._folder / name).unlink()

    def has_fired(self, name: str) -> bool:
        return (self._folder / name).exists()
