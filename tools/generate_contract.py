"""Generate the code of the plugin contract from its published ``.proto``.

``python tools/generate_contract.py`` writes it for Python, ``--go`` for the example in Go as well (protoc-gen-go and
protoc-gen-go-grpc must be on the PATH); ``--check`` only says whether what is committed is the same.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

CONTRACT = Path(__file__).resolve().parent.parent / "src" / "yunhe" / "infrastructure" / "contract"
PROTO = CONTRACT / "proto"
SOURCE = "yunhe/engine/v1/engine.proto"
GENERATED = CONTRACT / "generated"
NAMES = ("engine_pb2.py", "engine_pb2.pyi")
GO = CONTRACT.parents[3] / "examples" / "go-plugin"
GO_MODULE = "example.com/yunhe"


def generate(folder: Path) -> dict[str, str]:
    """Run the compiler with its output below *folder*; return the text of each file it must give."""
    arguments = ["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--pyi_out={folder}", SOURCE]
    if protoc.main(arguments) != 0:
        raise SystemExit(f"{SOURCE} does not compile")
    made = (folder / SOURCE).parent
    return {name: (made / name).read_text() for name in NAMES}


def generate_go() -> None:
    """Write the Go code, and beside it the contract it was made from."""
    outputs = [f"--{kind}_out={GO}" for kind in ("go", "go-grpc")]
    options = [f"--{kind}_opt=module={GO_MODULE}" for kind in ("go", "go-grpc")]
    if protoc.main(["protoc", f"-I{PROTO}", *outputs, *options, SOURCE]) != 0:
        raise SystemExit("the Go code cannot be made: are protoc-gen-go and protoc-gen-go-grpc on the PATH?")
    shutil.copy(PROTO / SOURCE, GO / "enginev1" / "engine.proto")


def differing() -> list[str]:
    """Return the names of the committed files that generating again would change."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
    changed = [name for name, text in fresh.items() if (GENERATED / name).read_text() != text]
    if (GO / "enginev1" / "engine.proto").read_text() != (PROTO / SOURCE).read_text():
        changed.append("enginev1 of the Go example")
    return changed


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something would change")
    parser.add_argument("--go", action="store_true", help="write the Go code as well")
    arguments = parser.parse_args()
    if arguments.check:
        changed = differing()
        print(f"out of date: {', '.join(changed)}" if changed else "up to date")
        return int(bool(changed))
    with tempfile.TemporaryDirectory() as folder:
        for name, text in generate(Path(folder)).items():
            (GENERATED / name).write_text(text)
    if arguments.go:
        generate_go()
    return 0


if __name__ == "__main__":
    sys.exit(main())
