"""Loops run again after a failure, sooner after one that passes by itself."""

import logging

import anyio
import pytest

from yunhe.kernel.errors import DiskFullError
from yunhe.observability import supervise

pytestmark = pytest.mark.anyio


async def pauses_after(
    error: Exception, monkeypatch: pytest.MonkeyPatch, *, failures: int = 9
) -> list[float]:
    """Return how long a loop that fails that often was paused each time."""
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == failures:
            raise EndOfTest

    async def fail() -> None:
        raise error

    monkeypatch.setattr(anyio, "sleep", sleep)
    with pytest.raises(EndOfTest):
        await supervise.supervise("test", fail)
    return paused


class EndOfTest(BaseException):
    pass


async def test_a_loop_that_fails_is_paused_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = await pauses_after(ValueError("a bug"), monkeypatch)
    assert paused[:3] == [0.5, 1.0, 2.0]
    assert paused[-1] == supervise.LONGEST_PAUSE_S


@pytest.mark.parametrize(
    "error",
    [DiskFullError("full"), ExceptionGroup("tasks", [DiskFullError("full")])],
    ids=["alone", "grouped"],
)
async def test_a_loop_that_finds_the_disk_full_looks_again_within_a_second_without_a_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paused = await pauses_after(error, monkeypatch)
    assert max(paused) <= supervise.RETRYABLE_PAUSE_S
    assert len(set(paused)) > 1  # each at its own time
    assert {(record.levelno, record.exc_info) for record in caplog.records} == {(logging.WARNING, None)}


async def test_a_bug_beside_a_full_disk_is_a_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = ExceptionGroup("tasks", [DiskFullError("full"), ValueError("a bug")])
    assert max(await pauses_after(errors, monkeypatch)) == supervise.LONGEST_PAUSE_S
    assert all(record.exc_info for record in caplog.records)
