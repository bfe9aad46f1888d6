"""A package index of the tests' own: wheels that they make, served on loopback as PEP 503 says."""

import hashlib
import threading
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ANSWER_WITHIN_S = 60.0


class PackageIndex:
    """The folder of an index, its address, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = ""
        self.asked: list[str] = []
        self.answers = threading.Event()
        """Cleared: whoever asks waits for his answer."""
        self.answers.set()

    def add(
        self, name: str, version: str, source: str, *, program: bool = False, size_bytes: int = 0
    ) -> None:
        """Put a wheel with one module there; with a *program* of its name where asked for, and of at least this size."""
        about = f"{name}-{version}.dist-info"
        files = {
            f"{name}.py": source,
            f"{name}.bin": "0" * size_bytes,
            f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        if program:
            files[f"{about}/entry_points.txt"] = f"[console_scripts]\n{name} = {name}:main\n"
        files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
        folder = self._folder / "simple" / name
        folder.mkdir(parents=True, exist_ok=True)
        wheel = folder / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        links = [
            f'<a href="{one.name}#sha256={hashlib.sha256(one.read_bytes()).hexdigest()}">{one.name}</a>'
            for one in sorted(folder.glob("*.whl"))
        ]
        (folder / "index.html").write_text("\n".join(links))


@contextmanager
def package_index(folder: Path) -> Generator[PackageIndex, None, None]:
    """Serve an index from *folder* for as long as the block runs."""
    index = PackageIndex(folder)

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            index.answers.wait(ANSWER_WITHIN_S)
            super().do_GET()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as the library calls it
            index.asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    index.address = f"http://127.0.0.1:{server.server_address[1]}/simple"
    try:
        yield index
    finally:
        index.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()
