"""The skeletons of ``yunhe plugin new``: files that pass the conformance kit as they are."""

from pathlib import Path

from yunhe.kernel.errors import ConflictError

NAMES = {"python": "example-engine", "go": "go-plugin"}
"""The name each skeleton has before it is given its own."""
GENERATED = "enginev1"
"""A folder of the Go skeleton that holds the contract itself and keeps its names."""


def write_skeleton(name: str, language: str, folder: Path) -> list[Path]:
    """Write the skeleton of *language* under *name*; touch nothing where there is something already."""
    if folder.exists() and any(folder.iterdir()):
        raise ConflictError(
            f"{folder} is not empty.", remedy="Name another folder with --folder, or remove this one."
        )
    source = _source(language)
    built = {"__pycache__", NAMES[language]}
    there = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
    chosen = [path for path in there if built.isdisjoint(path.parts)]
    return [_copy(source / path, folder / path, (NAMES[language], name)) for path in chosen]


def _source(language: str) -> Path:
    packaged = Path(__file__).parents[2] / "skeletons" / language
    if packaged.is_dir():
        return packaged
    return Path(__file__).parents[6] / "examples" / f"{language}-plugin"  # in a checkout: see pyproject.toml


def _copy(source: Path, to: Path, renamed: tuple[str, str]) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_text()
    to.write_text(text if GENERATED in to.parts else text.replace(*renamed))
    return to
