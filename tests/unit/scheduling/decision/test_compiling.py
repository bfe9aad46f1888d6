"""Compiled kernels: what an earlier version left in the cache does no harm."""

import importlib
import logging
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from yunhe.scheduling.decision import compiling

SOURCE = """
from typing import NamedTuple
import numpy as np
KERNELS = ("total",)
class NAME(NamedTuple):
    amounts: np.ndarray
def total(ask):
    found = 0
    for amount in ask.amounts:
        found += amount
    return found
"""


def imported(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (folder / "kernels_of_test.py").write_text(SOURCE.replace("NAME", name))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(compiling, "_COMPILED", set[str]())
    sys.modules.pop("kernels_of_test", None)
    importlib.invalidate_caches()
    module = importlib.import_module("kernels_of_test")
    compiling.compile_kernels(module)
    return module


def test_a_cache_that_names_a_class_that_is_gone_is_dropped_and_the_kernel_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # else the old module may be loaded again
    before = imported(tmp_path, "Asked", monkeypatch)
    assert before.total(before.Asked(np.array([1, 2]))) == 3
    assert list(tmp_path.rglob("*.nbi")), "nothing was cached"
    with caplog.at_level(logging.INFO):
        after = imported(tmp_path, "Ask", monkeypatch)
        assert after.total(after.Ask(np.array([1, 2, 3]))) == 6
    assert "cached kernel dropped" in caplog.text, "the old cache could be read: the test shows nothing"
    sys.modules.pop("kernels_of_test", None)
