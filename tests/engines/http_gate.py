"""A gate before a real HTTP service: passes everything on but the requests it was told to answer itself."""

import http.server
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

import httpx

NOT_PASSED_ON = {"connection", "content-length", "host", "transfer-encoding", "content-encoding"}


class Rule(NamedTuple):
    """What the gate answers to requests whose ``METHOD path`` the pattern matches."""

    pattern: str
    status: int
    body: bytes


@contextmanager
def http_gate(upstream: str, *rules: Rule) -> Generator[str]:
    """Stand before *upstream*; yield the address to go through."""

    class Gate(http.server.BaseHTTPRequestHandler):
        def relay(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length", "0")))
            for rule in rules:
                if re.match(rule.pattern, f"{self.command} {self.path}"):
                    self.reply(rule.status, {"content-type": "application/json"}, rule.body)
                    return
            kept = {name: value for name, value in self.headers.items() if name.lower() not in NOT_PASSED_ON}
            answer = httpx.request(self.command, upstream + self.path, headers=kept, content=sent, timeout=60)
            self.reply(answer.status_code, dict(answer.headers), answer.content)

        do_GET = do_POST = do_PUT = do_DELETE = relay  # noqa: N815 - the names the server looks for

        def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in NOT_PASSED_ON:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's own name
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gate)
    thread = threading.Thread(target=server.serve_forever, name="gate")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
