"""Slurm's words, read right: states, sizes, limits, quotas; and secrets that are nothing by halves."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.agent.protocol.refusals import Refusal
from yunhe.agent.runs.directory import Run
from yunhe.infrastructure.contract.manifest import read_manifest
from yunhe.infrastructure.contract.model import Ending, Power
from yunhe.infrastructure.slurm import kind
from yunhe.infrastructure.slurm.site import answers, nodes, programs, sealing, server
from yunhe.infrastructure.slurm.site.states import STATES, meaning_of

FOLDER = Path(kind.__file__).parent

SQUEUE_STATES = (
    "BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING PREEMPTED "
    "RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED RESIZING REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED "
    "SUSPENDED TIMEOUT"
)
"""Every state in the manual page of squeue."""


def test_the_manifest_is_complete_and_says_what_the_helper_says() -> None:
    manifest = read_manifest(FOLDER / "plugin.toml")
    assert manifest.name == "slurm"
    assert set(server.POWERS) == {power.value for power in manifest.powers}
    assert set(server.NEVER) == {power.value for power in manifest.missing}
    assert set(server.POWERS) | set(server.NEVER) == {power.value for power in Power}


@pytest.mark.parametrize("state", SQUEUE_STATES.split())
def test_every_state_of_the_manual_has_a_meaning(state: str) -> None:
    meaning = meaning_of(state)
    assert not (meaning.over and (meaning.waits or meaning.paused))
    assert meaning.ending is None or (meaning.over and Ending(meaning.ending))


def test_what_slurm_decides_is_told_as_what_it_was() -> None:
    endings = {state: meaning.ending for state, meaning in STATES.items() if meaning.ending}
    assert endings == {
        "CANCELLED": Ending.STOPPED,
        "TIMEOUT": Ending.TIMED_OUT,
        "DEADLINE": Ending.TIMED_OUT,
        "OUT_OF_MEMORY": Ending.OUT_OF_MEMORY,
        "PREEMPTED": Ending.PREEMPTED,
    }


def test_a_state_nobody_knows_is_an_error_that_names_it() -> None:
    with pytest.raises(Refusal, match="HIBERNATING"):
        meaning_of("HIBERNATING")


def test_other_peoples_jobs_are_not_ours() -> None:
    text = "7|yunhe-alloc_1|RUNNING|n1|None\n8|train|RUNNING|n2|None\n9|yunhe-alloc_2|PENDING||Priority\n"
    assert [(job.number, job.allocation_id, job.reason) for job in answers.jobs(text)] == [
        ("7", "alloc_1", ""),
        ("9", "alloc_2", "Priority"),
    ]


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("UNLIMITED", None),
        ("00:10:00", 10),
        ("01:30:59", 90),
        ("2-00:00:00", 2880),
        ("1-12", 2160),
        ("30", 30),
    ],
)
def test_a_time_limit_is_read_in_minutes(text: str, minutes: int | None) -> None:
    assert answers.minutes(text) == minutes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(null)", []),
        ("gpu:a100:4(S:0-1)", [("a100", 4000)]),
        ("gpu:2,craynetwork:1", [("gpu", 2000)]),
        ("gpu:h100:2,gpu:a30:1", [("a30", 1000), ("h100", 2000)]),
        ("gpu:a100:0(IDX:N/A)", []),
    ],
)
def test_accelerators_are_read_by_kind(text: str, found: list[tuple[str, int]]) -> None:
    assert [(one["kind"], one["milli"]) for one in answers.accelerators(text)] == found


def test_a_value_with_spaces_ends_where_the_next_name_begins() -> None:
    line = "NodeName=n1 OS=Linux 6.1 #1 SMP State=DOWN* Reason=fan broke [root@2026-11-15T22:40:57]"
    (record,) = answers.records(line)
    assert record == {
        "NodeName": "n1",
        "OS": "Linux 6.1 #1 SMP",
        "State": "DOWN*",
        "Reason": "fan broke [root@2026-11-15T22:40:57]",
    }


def test_every_limit_of_an_association_is_a_quota() -> None:
    """As sacctmgr 22.05 printed it for an account with these limits, and for root's own without any."""
    text = "physics||10|20|||cpu=4|cpu=64,mem=512G|cpu=100000\nroot||||||||\n"
    assert [(quota["name"], quota["limit"]) for quota in nodes.quotas(text)] == [
        ("physics MaxJobs", 10),
        ("physics MaxSubmit", 20),
        ("physics MaxTRES cpu", 4),
        ("physics GrpTRES cpu", 64),
        ("physics GrpTRES mem (MiB)", 524288),
        ("physics GrpTRESMins cpu", 100000),
    ]


def test_a_controller_that_is_away_may_be_asked_again_and_a_refusal_may_not() -> None:
    away = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
    no = "sbatch: error: Batch job submission failed: Invalid qos specification"
    assert programs.refused("sbatch", away).code == "pool-unreachable"
    assert programs.refused("sbatch", no).code == "invalid-input"
    assert "Invalid qos" in programs.refused("sbatch", no).problem


@given(secrets=st.dictionaries(st.text(min_size=1), st.text(), min_size=1))
@settings(max_examples=25)
def test_secrets_come_back_whole_once_and_neither_half_tells_them(
    secrets: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = Run(str(tmp_path_factory.mktemp("runs")), "one")
    Path(run.path).mkdir()
    key = sealing.split_secrets(run, secrets)
    half = Path(run.at("sealed.json")).read_text()
    assert all(value not in half and value not in key for value in secrets.values() if len(value) > 8)
    assert sealing.join_secrets(run, key) == secrets
    assert not Path(run.at("sealed.json")).exists()
    with pytest.raises(Refusal):
        sealing.join_secrets(run, key)


def test_features_partitions_architecture_and_boot_of_a_node_come_through() -> None:
    line = (
        "NodeName=n1 Arch=x86_64 CPUTot=4 CPULoad=0.50 AvailableFeatures=avx512,ib ActiveFeatures=avx512,ib Gres=(null) "
        "OS=Linux 6.1.0-18-amd64 #1 SMP Debian 6.1.76 RealMemory=8000 FreeMem=6000 State=IDLE Partitions=debug,long "
        "BootTime=2026-01-31T06:00:00 SlurmdStartTime=2026-01-31T06:01:00"
    )
    (fields,) = answers.records(line)
    node = nodes.node_of(fields, 10, 5)
    assert node["isa"] == "amd64"
    assert node["labels"] == {
        f"{kind}/{name}": "true"
        for kind, name in (
            ("feature", "avx512"),
            ("feature", "ib"),
            ("partition", "debug"),
            ("partition", "long"),
        )
    }
    assert (node["system"]["os"], node["system"]["kernel"]) == ("linux", "6.1.0-18-amd64")
    assert node["system"]["booted_at"] > 1.7e9
