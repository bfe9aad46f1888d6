"""Files are written whole, whoever else writes them at the same moment."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from yunhe.agent.durable import create_json, read_json, replace_json

WRITERS = 16


def test_of_threads_that_create_a_record_at_once_one_does_and_none_fails(tmp_path: Path) -> None:
    for turn in range(20):
        path, ready = str(tmp_path / f"{turn}.json"), Barrier(WRITERS)

        def create(number: int, path: str = path, ready: Barrier = ready) -> bool:
            ready.wait(10)
            return create_json(path, {"writer": number, "padding": "x" * 1000 * number})

        with ThreadPoolExecutor(WRITERS) as pool:
            made = list(pool.map(create, range(WRITERS)))
        assert made.count(True) == 1
        record = read_json(path)
        assert record is not None
        assert record["writer"] == made.index(True)
    assert len(list(tmp_path.iterdir())) == 20


def test_of_threads_that_replace_a_record_at_once_none_fails(tmp_path: Path) -> None:
    path, ready = str(tmp_path / "record.json"), Barrier(WRITERS)

    def replace(number: int) -> None:
        ready.wait(10)
        replace_json(path, {"writer": number, "padding": "x" * 1000 * number})

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(replace, range(WRITERS)))
    assert read_json(path) is not None
    assert len(list(tmp_path.iterdir())) == 1
