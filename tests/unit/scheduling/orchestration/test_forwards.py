"""Connections into jobs are counted, and written to the audit log once in a while."""

import pytest

from yunhe.kernel.errors import TooManyRequestsError
from yunhe.kernel.ids import JobId
from yunhe.scheduling.orchestration.forwards import MOST_PER_JOB, NEWS_AFTER_S, Forwards
from yunhe.storage.audit import Actor, act_as

JOB, OTHER = JobId("job_1"), JobId("job_2")


def test_one_connection_too_many_is_refused_until_one_ends() -> None:
    forwards = Forwards()
    held = [forwards.opened(JOB) for _ in range(MOST_PER_JOB)]
    for one in held:
        one.__enter__()
    with (
        pytest.raises(TooManyRequestsError, match="64 connections into job_1 are open"),
        forwards.opened(JOB),
    ):
        pass
    with forwards.opened(OTHER):
        pass
    held[0].__exit__(None, None, None)
    with forwards.opened(JOB):
        pass


def news(forwards: Forwards, port: int, now: float) -> bool:
    with forwards.news(JOB, port, now) as is_news:
        return is_news


def test_who_connects_to_a_port_again_and_again_is_written_once_in_ten_minutes() -> None:
    forwards = Forwards()
    act_as(Actor("mei", "key_1"))
    assert [news(forwards, 80, now) for now in (0.0, 1.0, NEWS_AFTER_S - 1)] == [True, False, False]
    assert news(forwards, 81, 1.0)
    act_as(Actor("lin", "key_2"))
    assert news(forwards, 80, 1.0)
    act_as(Actor("mei", "key_1"))
    assert news(forwards, 80, NEWS_AFTER_S)


def test_a_line_that_could_not_be_written_is_news_again() -> None:
    forwards = Forwards()
    with pytest.raises(OSError, match="disk"), forwards.news(JOB, 80, 0.0):
        raise OSError("disk")
    assert news(forwards, 80, 1.0)
