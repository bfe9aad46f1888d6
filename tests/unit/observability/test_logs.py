import logging
import sys

from yunhe.observability.logs import FactFormatter


def test_a_line_has_the_sentence_and_its_facts_before_any_traceback() -> None:
    try:
        raise ValueError("boom")  # noqa: TRY301 - the traceback is the point
    except ValueError:
        record = logging.getLogger("yunhe.x").makeRecord(
            "yunhe.x", logging.ERROR, "f", 1, "step failed", (), sys.exc_info(), extra={"job": "job_1"}
        )
    first, *rest = FactFormatter().format(record).splitlines()
    assert first.endswith("ERROR   yunhe.x: step failed job=job_1")
    assert rest[-1] == "ValueError: boom"


def test_an_event_without_facts_is_its_sentence() -> None:
    record = logging.makeLogRecord({"msg": "started", "levelname": "INFO", "name": "yunhe.y"})
    assert FactFormatter().format(record).endswith("INFO    yunhe.y: started")
