"""What is safe to repeat is repeated, what is not is not, and a stream that drops goes on where it ended."""

import base64
import inspect
from collections.abc import AsyncGenerator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unit.entrypoints.client.scripted import ScriptedAnswer, ScriptedTransport, problem
from yunhe.entrypoints.client import AsyncClient, Client, ServerUnreachableError
from yunhe.entrypoints.client.sse import ServerEvent, parse_events
from yunhe.entrypoints.client.transport import ApiCall, NoConnectionError, TransportError, run
from yunhe.kernel.errors import ConflictError, InvalidInputError, PoolUnreachableError
from yunhe.scheduling.orchestration.jobs.model import LogPiece
from yunhe.trading.accounts.model import Principal
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task

ME = ScriptedAnswer(b'{"user_id":"u","name":"ann","key_id":"k","memberships":[]}')
JOB = b'{"id":"job_1","name":"n","project_id":"p","submitted_by":"ann","state":"%s","submitted_at":1.0,"demand":{"job_id":"job_1","project_id":"p","alternatives":[]}}'


def client_over(transport: ScriptedTransport) -> AsyncClient:
    return AsyncClient("http://127.0.0.1:1", "key", transport=transport)


@pytest.mark.parametrize(
    "failure", [TransportError("cut"), NoConnectionError("refused"), problem("pool-unreachable", 503)]
)
def test_a_read_is_repeated_until_it_is_answered(failure: Exception | ScriptedAnswer) -> None:
    transport = ScriptedTransport(failure, failure, ME)
    assert isinstance(run(client_over(transport).me()), Principal)
    assert len(transport.calls) == 3
    assert transport.slept_s[0] < transport.slept_s[1]


def test_trying_ends_with_the_patience() -> None:
    transport = ScriptedTransport(NoConnectionError("refused"))
    with pytest.raises(ServerUnreachableError):
        run(client_over(transport).me())
    assert 1.5 <= sum(transport.slept_s) <= 4.5


def test_a_submission_is_repeated_with_the_same_idempotency_key() -> None:
    transport = ScriptedTransport(TransportError("cut"), ScriptedAnswer(JOB % b"pending"))
    run(client_over(transport).submit(Submission(task=Task(run="true"))))
    first, second = (call.headers["Idempotency-Key"] for call in transport.calls)
    assert first == second != ""


def test_two_submissions_have_different_idempotency_keys() -> None:
    transport = ScriptedTransport(ScriptedAnswer(JOB % b"pending"))
    client = client_over(transport)
    for _ in range(2):
        run(client.submit(Submission(task=Task(run="true"))))
    first, second = (call.headers["Idempotency-Key"] for call in transport.calls)
    assert first != second


def test_making_a_key_is_not_repeated_once_it_may_have_been_heard() -> None:
    transport = ScriptedTransport(TransportError("cut"), ME)
    with pytest.raises(ServerUnreachableError):
        run(client_over(transport).create_key("ci"))
    assert len(transport.calls) == 1


def test_making_a_key_is_repeated_when_the_server_was_never_reached() -> None:
    made = ScriptedAnswer(b'{"key":{"id":"k","user_id":"u","name":"ci","created_at":1.0},"text":"yk_x"}')
    transport = ScriptedTransport(NoConnectionError("refused"), made)
    assert run(client_over(transport).create_key("ci")).text == "yk_x"


def test_a_refusal_comes_back_as_its_own_error() -> None:
    transport = ScriptedTransport(
        problem("invalid-input", 400, fields=[{"field": "task.run", "problem": "is missing"}])
    )
    with pytest.raises(InvalidInputError) as caught:
        run(client_over(transport).submit(Submission(task=Task(run="true"))))
    assert caught.value.problem == "It went wrong."
    assert caught.value.remedy == "Mend it."
    assert [field.field for field in caught.value.fields] == ["task.run"]
    assert len(transport.calls) == 1


def test_a_refused_retryable_call_raises_its_own_error_in_the_end() -> None:
    transport = ScriptedTransport(problem("pool-unreachable", 503))
    with pytest.raises(PoolUnreachableError):
        run(client_over(transport).stop("job_1"))


def test_a_problem_in_a_stream_is_raised() -> None:
    body = b'event: check\ndata: {"step":"reach","ok":true}\n\nevent: problem\ndata: {"code":"conflict","detail":"No."}\n\n'
    transport = ScriptedTransport(ScriptedAnswer(body))

    async def read() -> None:
        async for _ in client_over(transport).check_pool("lab"):
            pass

    with pytest.raises(ConflictError):
        run(read())


events = st.lists(st.tuples(st.sampled_from(["job", "log"]), st.binary(max_size=20)), max_size=6)


@given(events, st.lists(st.integers(1, 30), max_size=20))
def test_events_are_read_however_the_network_cuts_them(
    sent: list[tuple[str, bytes]], cuts: list[int]
) -> None:
    wire = b": still here\n\n" + b"".join(
        f"event: {name}\ndata: {base64.b64encode(data).decode()}\n\n".encode() for name, data in sent
    )

    async def chunks() -> AsyncGenerator[bytes, None]:
        rest = wire
        for cut in cuts:
            yield rest[:cut]
            rest = rest[cut:]
        yield rest

    async def collect() -> list[ServerEvent]:
        return [event async for event in parse_events(chunks())]

    assert run(collect()) == [ServerEvent(name, base64.b64encode(data)) for name, data in sent]


class LogServer:
    """Serves two attempts' output in pieces, and cuts the connection after a given number of events each time."""

    def __init__(self, attempts: list[bytes], cuts: list[int], piece: int) -> None:
        self._attempts = attempts
        self._cuts = cuts
        self._piece = piece

    def __call__(self, call: ApiCall) -> ScriptedAnswer:
        which = dict(call.query)
        start, offset = int(which.get("attempt", 0)) or 1, int(which.get("offset", 0))
        sent: list[bytes] = []
        for number, output in enumerate(self._attempts, 1):
            if number < start:
                continue
            at = offset if number == start else 0
            while at < len(output):
                data = output[at : at + self._piece]
                piece = LogPiece(attempt=number, offset=at, data=data)
                at += len(data)
                sent.append(b"event: log\ndata: " + msgspec.json.encode(piece) + b"\n\n")
        sent.append(b"event: end\ndata: {}\n\n")
        cut = self._cuts.pop(0) if self._cuts else len(sent)
        return ScriptedAnswer(sent[:cut], breaks=cut < len(sent))


@given(
    st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=3),
    st.lists(st.integers(0, 5), max_size=6),
    st.integers(1, 9),
)
def test_a_followed_log_loses_and_repeats_nothing_over_dropped_connections(
    attempts: list[bytes], cuts: list[int], piece: int
) -> None:
    transport = ScriptedTransport(LogServer(attempts, cuts, piece))

    async def collect() -> bytes:
        return b"".join([p.data async for p in client_over(transport).logs("job_1", follow=True)])

    assert run(collect()) == b"".join(attempts)


def test_the_sync_client_has_every_method_of_the_async_one_but_exec() -> None:
    def methods(kind: type[object]) -> dict[str, tuple[str, list[str], str]]:
        return {
            name: (member.__name__, list(inspect.signature(member).parameters), inspect.getdoc(member) or "")
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    of_async = methods(AsyncClient)
    del of_async["exec"], of_async["forward"]
    assert methods(Client) == of_async
