"""Generate the Python code of the plugin contract from its published ``.proto``.

``python tools/generate_contract.py`` writes it; ``--check`` only says whether what is committed is the same.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

CONTRACT = Path(__file__).resolve().parent.parent / "src" / "yunhe" / "infrastructure" / "contract"
PROTO = CONTRACT / "proto"
SOURCE = "yunhe/engine/v1/engine.proto"
GENERATED = CONTRACT / "generated"
NAMES = ("engine_pb2.py", "engine_pb2.pyi")


def generate(folder: Path) -> dict[str, str]:
    """Run the compiler with its output below *folder*; return the text of each file it must give."""
    arguments = ["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--pyi_out={folder}", SOURCE]
    if protoc.main(arguments) != 0:
        raise SystemExit(f"{SOURCE} does not compile")
    made = (folder / SOURCE).parent
    return {name: (made / name).read_text() for name in NAMES}


def differing() -> list[str]:
    """Return the names of the committed files that generating again would change."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
    return [name for name, text in fresh.items() if (GENERATED / name).read_text() != text]


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something would change")
    if parser.parse_args().check:
        changed = differing()
        print(f"out of date: {', '.join(changed)}" if changed else "up to date")
        return int(bool(changed))
    with tempfile.TemporaryDirectory() as folder:
        for name, text in generate(Path(folder)).items():
            (GENERATED / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
