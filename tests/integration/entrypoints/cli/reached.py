"""What a job runs that is reached from outside; its ports are counted from the one it is given."""

import asyncio
import hashlib
import http.server
import sys
import threading

from websockets.asyncio.server import ServerConnection, serve

ECHO, DIGEST, PAGES, SOCKETS = range(4)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what comes, as it comes."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def digest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say nothing until the other side has said all; then tell what came."""
    seen = hashlib.sha256()
    while data := await reader.read(65536):
        seen.update(data)
    writer.write(seen.hexdigest().encode())
    writer.close()


async def talk(socket: ServerConnection) -> None:
    """Send back each message."""
    async for message in socket:
        await socket.send(message)


async def main(first: int) -> None:
    """Serve until the job ends."""
    handler = http.server.SimpleHTTPRequestHandler
    pages = http.server.ThreadingHTTPServer(("127.0.0.1", first + PAGES), handler)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    await asyncio.start_server(echo, "127.0.0.1", first + ECHO, backlog=200)
    await asyncio.start_server(digest, "::1" if "six" in sys.argv else "127.0.0.1", first + DIGEST)
    async with serve(talk, "127.0.0.1", first + SOCKETS):
        print("ready", flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
