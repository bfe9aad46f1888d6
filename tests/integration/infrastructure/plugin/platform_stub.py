"""As much of a platform as a plugin sees: the address it registers at."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class PlatformStub:
    """Remembers who registers, and answers that the newest instance of a plugin is the active one."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.key = "k-secret"
        self.instances: dict[str, dict[str, Any]] = {}
        self.heartbeats: dict[str, int] = {}
        self.departed: list[str] = []

    def put(self, instance: str, body: dict[str, Any]) -> dict[str, Any]:
        self.instances.setdefault(instance, body)
        self.heartbeats[instance] = self.heartbeats.get(instance, 0) + 1
        newest = list(self.instances)[-1]
        return {"heartbeat_s": 0.1, "state": "active" if instance == newest else "superseded"}


@contextmanager
def platform_stub(port: int = 0) -> Generator[PlatformStub]:
    """Serve one until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.headers["Authorization"] != f"Bearer {stub.key}":
                self._answer(401, {"code": "unauthenticated"})
                return
            self._answer(200, stub.put(self.path, body))

        def do_DELETE(self) -> None:
            stub.departed.append(self.path)
            stub.instances.pop(self.path, None)
            self._answer(204, None)

        def _answer(self, status: int, body: dict[str, Any] | None) -> None:
            text = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - theirs
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    stub = PlatformStub(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
