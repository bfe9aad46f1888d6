"""A command beside a job whose server has had enough before we have said what we want."""

import msgspec
import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from yunhe.entrypoints.api.problems import problem_of
from yunhe.entrypoints.client.exec import ExecStream
from yunhe.kernel.errors import ForbiddenError

pytestmark = pytest.mark.anyio


class Refusing:
    """A socket that is closed already; what came before the end can still be read."""

    async def send(self, message: str | bytes) -> None:
        raise ConnectionClosedError(Close(1008, "forbidden"), None)

    async def recv(self) -> str:
        refusal = problem_of(ForbiddenError("You may only look.", remedy="Ask the owner."), "req_1")
        return msgspec.json.encode({"problem": refusal}).decode()


async def test_what_is_refused_before_it_was_asked_is_told_by_receiving() -> None:
    stream = ExecStream(Refusing(), "http://127.0.0.1:1")  # pyright: ignore[reportArgumentType]
    await stream.send(b"typed")
    await stream.resize(24, 80)
    with pytest.raises(ForbiddenError, match="only look"):
        await stream.receive()
