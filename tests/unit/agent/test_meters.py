"""The end of an allocation's meter."""

from pathlib import Path

from yunhe.agent.runs.meters import Meter, UsageSample


def test_the_last_counters_count_even_if_a_sample_bears_a_later_time(tmp_path: Path) -> None:
    meter = Meter(str(tmp_path / "samples"))
    meter.add(UsageSample(1000, 1000, 0, 0, 0, 0))
    meter.add(UsageSample(1200, 1200, 20_000, 2048, 0, 0))  # taken while the exit was being written
    for _ in range(2):  # an agent that died over it does it again
        meter.finish(UsageSample(1199, 1199, 29_000, 2048, 4096, 8192), 11 * 1024)
    totals = meter.totals()
    assert (totals["cpu_us"], totals["read_bytes"], totals["written_bytes"]) == (29_000, 4096, 8192)
    assert totals["wall_ms"] == 201
    assert totals["memory_peak_mib"] == 11


def test_a_kernel_without_a_count_of_the_peak_leaves_the_highest_sample(tmp_path: Path) -> None:
    meter = Meter(str(tmp_path / "samples"))
    meter.add(UsageSample(1000, 1000, 0, 3 * 1024, 0, 0))
    meter.finish(UsageSample(2000, 2000, 0, 1024, 0, 0), None)
    assert meter.totals()["memory_peak_mib"] == 3
