"""One platform over x86 and ARM machines with GPU and Ascend devices: each task goes to hardware it can use, or waits."""

from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from integration.entrypoints.cli.conftest import Shell
from integration.entrypoints.cli.placement_cases import explained, said
from yunhe.infrastructure.contract.kind import Target
from yunhe.kernel.ids import NodeId
from yunhe.kernel.money import Prices
from yunhe.kernel.resources import Accelerators, Resources

HARDWARE: dict[str, tuple[str, str, tuple[Accelerators, ...]]] = {
    "ascend": ("arm64", "Kunpeng-920", (Accelerators("Ascend910", 8000),)),
    "gpus": ("amd64", "Xeon", (Accelerators("A100", 2000),)),
    "kunpeng": ("arm64", "Kunpeng-920", ()),
    "xeon": ("amd64", "Xeon", ()),
}
"""Pool → instruction set, processor and devices of its node."""

GOES: dict[tuple[str, ...], str] = {
    ("--architecture", "x86_64"): "xeon",
    ("--architecture", "aarch64"): "kunpeng",
    ("--where", "cpu=Kunpeng-920"): "kunpeng",
    ("--gpus", "A100:2"): "gpus",
    ("--gpus", "Ascend910:8"): "ascend",
    ("--gpus", "Ascend910:1", "--architecture", "arm64"): "ascend",
    ("--architecture", "riscv64", "--architecture", "arm64"): "kunpeng",
}
WAITS: dict[tuple[str, ...], set[str]] = {
    ("--architecture", "riscv64"): {"architecture"},
    ("--gpus", "A100:1", "--architecture", "arm64"): {"architecture", "roomy"},
    ("--gpus", "Ascend910:9"): {"roomy"},
    ("--gpus", "A100:3"): {"roomy"},
    ("--gpus", "H100:1"): {"roomy"},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(tmp_path_factory.mktemp("hardware")) as served, served.client() as client:
        for name, (isa, cpu, devices) in HARDWARE.items():
            pool = served.engines.site(Target(address=name)).pool
            total = Resources(8000, 16_384, 102_400, devices)
            pool.reported[NodeId("fake-1")] = {"isa": isa, "labels": {"cpu": cpu}, "total": total}
            add_fake_pool(client, name)
            client.set_prices(name, Prices(cpu_core_hour_micros=900_000 if devices else 50_000))
        yield served


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})


@pytest.mark.feature(
    "B03",
    file="src/yunhe/scheduling/decision/filter/rules.py",
    old="if demand.isa and node_class.isa not in demand.isa:",
    new="if demand.isa and not node_class.isa:",
)
def test_each_task_runs_on_hardware_that_it_can_use_or_waits_and_says_why(shell: Shell) -> None:
    for options, pool in GOES.items():
        words = ("run", "--yes", "--output", "json", "--cpus", "1", *options, "--", "true")
        job = msgspec.json.decode(said(shell, *words))
        assert job["state"] == "succeeded"
        assert job["attempts"][-1]["pool_name"] == pool, options
    for options, rules in WAITS.items():
        decision = explained(shell, *options)["decision"]
        assert {no["rule"] for no in decision["rejected"]} == rules, options
        assert len(decision["rejected"]) == len(HARDWARE)
