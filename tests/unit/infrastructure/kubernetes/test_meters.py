"""What a node has told of a pod, and what its task tells at the end, make one bill."""

from yunhe.infrastructure.contract.model import Meters
from yunhe.infrastructure.kubernetes.objects.wrapper import Used
from yunhe.infrastructure.kubernetes.usage.meters import PodMeter, PodSample, fold
from yunhe.kernel.ids import AllocationId


def metered(*samples: PodSample, held: Meters | None = None) -> PodMeter:
    meter = PodMeter(AllocationId("alloc_1"), held or Meters())
    for sample in samples:
        meter.add(sample)
    return meter


def test_what_was_used_after_the_last_sample_is_billed_too() -> None:
    meter = metered(PodSample(0, 1_000_000, 10), PodSample(10, 2_190_000, 30))
    assert meter.meters(11_000).cpu_us == 2_190_000
    final = meter.meters(11_000, Used(6_820_000, 64, 4096, 8192))
    assert (final.cpu_us, final.memory_peak_mib) == (6_820_000, 64)
    assert (final.read_bytes, final.written_bytes) == (4096, 8192)
    assert final.memory_mib_ms == 200_000


def test_a_task_that_no_sample_saw_is_billed() -> None:
    assert metered().meters(2000, Used(1_860_000)).cpu_us == 1_860_000


def test_no_task_lowers_its_bill_below_what_its_node_has_told() -> None:
    meter = metered(PodSample(0, 1_000_000, 10), PodSample(10, 9_000_000, 30))
    final = meter.meters(11_000, Used(0))
    assert (final.cpu_us, final.memory_peak_mib) == (9_000_000, 30)
    held = Meters(cpu_us=7_000_000, read_bytes=5)
    assert metered(held=held).meters(11_000, Used(1_000_000)).cpu_us == 7_000_000
    assert metered(held=held).meters(11_000).read_bytes == 5


def test_what_no_node_could_have_done_in_the_time_is_not_billed() -> None:
    meter = metered(PodSample(0, 1_000_000, 10), PodSample(10, 2_000_000, 30))
    made_up = (Used(10**18), Used(1, read_bytes=10**18), Used(1, memory_peak_mib=10**12))
    for used in made_up:
        final = meter.meters(11_000, used)
        assert (final.cpu_us, final.memory_peak_mib, final.read_bytes) == (2_000_000, 30, 0)


def test_a_task_shorter_than_a_look_of_its_node_has_a_minute_all_the_same() -> None:
    meter = metered()
    meter.meters(2000, Used(1_500_000, 64))
    minute = fold(1, meter.allocation_id, meter.rest(120.0, 122.0))
    assert (minute.minute, minute.samples, minute.memory_max_mib) == (2, 1, 64)
    assert minute.cpu_mean_millis == minute.cpu_max_millis == 500


def test_the_last_minute_goes_up_to_the_end() -> None:
    meter = metered(PodSample(100.5, 1_000_000, 10), PodSample(110.5, 2_000_000, 30))
    meter.meters(20_000, Used(3_000_000))
    rest = meter.rest(95.0, 114.0)
    assert rest[-1] == PodSample(115.0, 3_000_000, 30)
    assert meter.rest(95.0, 114.0) == [], "what was handed out is not again"


def test_nobody_guesses_what_lay_in_a_long_gap() -> None:
    assert metered().rest(100.0, 400.0) == []
    meter = metered(PodSample(100.5, 1_000_000, 10), PodSample(110.5, 2_000_000, 30))
    assert meter.rest(95.0, 400.0)[-1].at == 110.5
