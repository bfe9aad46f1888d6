"""Pages that answer at a glance, within the terminal's width."""

import io

import msgspec
import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from yunhe.control.pools.model import Check, Meters, Pool, PoolNode, PoolSpec, PoolState
from yunhe.entrypoints.cli.terminal.screen import amount, bytes_text, out, span
from yunhe.entrypoints.cli.views.costs import costs_table
from yunhe.entrypoints.cli.views.jobs import ending, explanation_page, jobs_table
from yunhe.entrypoints.cli.views.plan import plan_page, why_first
from yunhe.entrypoints.cli.views.pools import check_line, pools_table
from yunhe.kernel.ids import AllocationId, JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.places import Level, Place
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.model import (
    Alternative,
    Assignment,
    Candidate,
    Demand,
    Placed,
    Rejection,
    Waiting,
)
from yunhe.scheduling.orchestration.jobs.model import Attempt, Explanation, Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.trades.model import CostLine, CostReport

ASK = Resources(cpu_millis=2000, memory_mib=4096)
HERE, LAB, EDGE = PoolId("pool_1"), PoolId("pool_2"), PoolId("pool_3")


def drawn(page: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(page)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def pool(pool_id: PoolId, name: str, place: Place | None = None) -> Pool:
    node = PoolNode(
        id=NodeId("n"),
        pool_id=pool_id,
        total=Resources(cpu_millis=64000, memory_mib=262144),
        used=Resources(cpu_millis=1500, memory_mib=2048),
        seen_at=0.0,
    )
    spec = PoolSpec(name=name, kind="ssh" if place else "local", place=place)
    return Pool(id=pool_id, spec=spec, state=PoolState.READY, limits="cgroup v1", added_at=0.0, nodes=(node,))


POOLS = {
    HERE: pool(HERE, "this-machine"),
    LAB: pool(LAB, "lab", Place("bj", level=Level.CENTRAL)),
    EDGE: pool(EDGE, "edge-07", Place("sh", level=Level.EDGE)),
}


def candidate(pool_id: PoolId, name: str, score: float, cost: float | None) -> Candidate:
    return Candidate(pool_id, name, NodeId("n"), 0, score, {"cost_per_hour": cost, "distance_km": None})


PLACED = Placed(
    assignments=(Assignment(HERE, NodeId("n"), ASK),),
    score=0.0,
    terms={},
    candidates=(candidate(HERE, "this-machine", 0.0, 0.08), candidate(LAB, "lab", 1.94, None)),
    rejected=(Rejection(EDGE, "edge-07", "roomy", "2 cores asked, 1 free"),),
    snapshot_version=7,
)


def job(state: JobState, **more: object) -> Job:
    attempt = Attempt(
        allocation_id=AllocationId("a"),
        number=1,
        pool_id=HERE,
        pool_name="this-machine",
        node_id=NodeId("n"),
        resources=ASK,
        meters=Meters(cpu_us=11_900_000, memory_peak_mib=317),
    )
    fields: dict[str, object] = {
        "id": JobId("job_06d1t8k2m4abcdefghj"),
        "name": "train",
        "project_id": ProjectId("default"),
        "submitted_by": "admin",
        "state": state,
        "submitted_at": 0.0,
        "started_at": 1.0,
        "ended_at": 13.4,
        "attempts": (attempt,),
        "demand": Demand(
            job_id=JobId("j"), project_id=ProjectId("default"), alternatives=(Alternative(ASK),)
        ),
    }
    return Job(**{**fields, **more})  # pyright: ignore[reportArgumentType]


def report(*lines: CostLine) -> CostReport:
    return CostReport(
        by="job",
        lines=lines,
        count=len(lines),
        amount_micros=sum(line.amount_micros for line in lines),
        reserved_micros=sum(line.reserved_micros for line in lines),
        currency="CNY",
    )


LINE = CostLine(
    key="job_06d1t8k2m4abcdefghj",
    name="train",
    tier="high",
    entries=1,
    cpu_us=11_900_000,
    memory_mib_ms=10**6,
    io_bytes=4096,
    network_bytes=None,
    amount_micros=300,
    reserved_micros=1100,
    currency="CNY",
)


def test_the_chosen_pool_comes_first_and_each_refusal_says_why() -> None:
    lines = drawn(plan_page(PLACED, POOLS, "Considered")).splitlines()
    assert lines[2].split() == ["✔", "this-machine", "local", "yes", "now", "¥0.0800", "0.00"]
    assert lines[3].split() == ["lab", "bj", "/", "central", "yes", "now", "not", "priced", "1.94"]
    assert lines[4].split("no", 1)[1].strip() == "2 cores asked, 1 free"


def test_a_waiting_demand_is_told_the_nearest_yes() -> None:
    waiting = Waiting(
        rejected=PLACED.rejected, smallest_change="ask for 1 cores: edge-07 has them free", snapshot_version=1
    )
    page = drawn(plan_page(waiting, POOLS, "Considered"))
    assert "No pool can take it now." in page
    assert "smallest change that would start it now: ask for 1 cores" in page


def test_no_pool_at_all_says_how_to_add_one() -> None:
    nowhere = Waiting(rejected=(), smallest_change="", snapshot_version=1)
    assert "yunhe pool add" in drawn(plan_page(nowhere, {}, "Considered"))


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_the_list_of_jobs_fits_breaks_no_word_and_names_what_it_leaves_out(width: int) -> None:
    waits = msgspec.structs.replace(job(JobState.PENDING, attempts=()), reason="lab: 64 cores asked, 8 free")
    page = drawn(jobs_table([job(JobState.RUNNING), waits], now=20.0), width=width)
    assert max(map(len, page.splitlines())) <= width
    assert page.count("job_06d1t8k2m4abcdefghj") == 2
    headings = {"JOB", "NAME", "STATE", "POOL", "SUBMITTED", "RAN", "RESOURCES", "NOTE"}
    assert all(heading in page for heading in headings), "shown, or said to be left out"
    assert ("no room for" in page) == (width < 160)
    assert ("this-machine" in page) == (width >= 60)
    assert ("64 cores asked, 8 free" in page) == (width == 160), "why it waits"


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_list_of_pools_fits_breaks_no_word_and_names_what_it_leaves_out(width: int) -> None:
    page = drawn(pools_table(list(POOLS.values())), width=width)
    assert max(map(len, page.splitlines())) <= width
    assert all(name in page for name in ("this-machine", "lab", "edge-07", "LIMITS", "NOTE"))
    assert ("cgroup v1" in page) == (width == 160)


def test_an_ending_tells_use_cost_and_what_next() -> None:
    page = drawn(ending(job(JobState.SUCCEEDED), report(LINE)), width=80)
    assert "✓ succeeded in 12.4 s" in page
    assert "used 11.9 core-s, 317 MiB peak" in page
    assert "cost ¥0.0003 (reserved would have been ¥0.0011)" in page
    assert "yunhe explain job_06d1t8k2m4abcdefghj" in page


def test_a_job_that_lost_its_outputs_says_so_in_the_list_and_at_its_end() -> None:
    good = job(JobState.SUCCEEDED)
    attempt = msgspec.structs.replace(good.attempts[0], outputs_lost="no such allocation")
    lost = msgspec.structs.replace(
        good, attempts=(attempt,), reason="its outputs are lost: no such allocation"
    )
    assert "NOTE" not in drawn(jobs_table([good], now=20.0))
    assert "its outputs are lost" in drawn(jobs_table([lost], now=20.0))
    assert "its outputs are lost" in drawn(ending(lost, report(LINE)))


def test_a_job_that_waits_for_its_files_says_why_in_the_list() -> None:
    waits = job(JobState.FINISHING, reason="No room left.")
    assert "No room left." in drawn(jobs_table([waits], now=20.0))


def test_a_failure_tells_its_reason() -> None:
    failed = job(JobState.FAILED, exit_code=3, reason="run ended with exit code 3")
    page = drawn(ending(failed, report()), width=160)
    assert "✗ failed" in page
    assert "run ended with exit code 3" in page
    assert "cost not metered yet" in page


def test_an_explanation_names_the_need_the_policy_and_the_choice() -> None:
    page = drawn(
        explanation_page(
            Explanation(job=job(JobState.RUNNING), decision=PLACED, decided_at=1.0), POOLS, now=20.0
        )
    )
    assert "train running on this-machine" in page
    assert "needs 2 cores  4 GiB" in page
    assert "policy balanced" in page
    assert "✔" in page


def test_pools_and_costs_fit_120_columns() -> None:
    for page in (pools_table(list(POOLS.values())), costs_table(report(LINE, LINE))):
        text = drawn(page, width=120)
        assert max(map(len, text.splitlines())) <= 120
        assert "…" not in text
    assert "unmetered" in drawn(costs_table(report(LINE)), width=120)


def test_a_total_of_more_than_is_shown_says_so() -> None:
    part = msgspec.structs.replace(report(LINE), count=221, amount_micros=9_360_000)
    (last,) = drawn(costs_table(part), width=120).splitlines()[-1:]
    assert last.split()[:4] == ["total", "of", "221", "¥9.36"]
    assert "total" not in drawn(costs_table(report(LINE)), width=120)


def test_a_failed_step_shows_its_remedy() -> None:
    page = drawn(check_line(Check(step="key accepted", ok=False, detail="denied", remedy="ssh-copy-id lab")))
    assert "✗ key accepted  denied" in page
    assert "→ ssh-copy-id lab" in page


def test_amounts_are_short() -> None:
    assert amount(Resources(1000, 512, 0, (Accelerators("A100", 500),))) == "1 core  512 MiB  A100×0.5"
    assert [span(s) for s in (None, 0.84, 75, 3700, 200_000)] == ["–", "0.8s", "1m15s", "1h01m", "2d7h"]
    assert [bytes_text(n) for n in (None, 0, 2048, 5 * 1024**4)] == ["unmetered", "0 B", "2 KiB", "5 TiB"]


def test_who_wants_no_colour_gets_no_bold_or_dim_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for value, escapes in (("1", False), ("", True)):
        monkeypatch.setenv("NO_COLOR", value)
        console = out()
        with console.capture() as shown:
            console.print(Text("bold", style="bold"), Text("dim", style="dim red"))
        assert ("\x1b[" in shown.get()) is escapes


def choice(*candidates: Candidate) -> Placed:
    return Placed(assignments=(), score=0.0, terms={}, candidates=candidates, rejected=(), snapshot_version=1)


def test_why_the_first_is_first_is_said_in_terms_of_the_next() -> None:
    first = Candidate(HERE, "here", NodeId("n"), 0, 0.1, {"cost_per_hour": 0.2, "distance_km": 900.0})
    second = Candidate(LAB, "lab", NodeId("n"), 0, 0.2, {"cost_per_hour": 0.3, "distance_km": 100.0})
    assert str(why_first(choice(first, second))) == (
        "best of 2 that fit: ¥0.1000/h cheaper, 800 km farther than lab, the next"
    )
    assert "dearer, 800 km nearer than here" in str(why_first(choice(second, first)))


def test_what_is_unknown_is_not_compared() -> None:
    said = why_first(choice(candidate(HERE, "here", 0.1, None), candidate(LAB, "lab", 0.2, 0.3)))
    assert str(said) == "best of 2 that fit; lab, the next, is no different in what is known"
    assert why_first(choice(candidate(HERE, "here", 0.1, None))) is None


@pytest.mark.parametrize(
    ("scores", "shown"),
    [
        ((0.1, 0.2), ["0.10", "0.20"]),
        ((0.2851, 0.2869), ["0.285", "0.287"]),
        ((0.28511, 0.28519), ["0.2851", "0.2852"]),
        ((0.2, 0.2), ["0.2000", "0.2000"]),
    ],
)
def test_scores_have_the_decimals_that_tell_the_best_two_apart(
    scores: tuple[float, float], shown: list[str]
) -> None:
    decision = choice(candidate(HERE, "here", scores[0], 0.1), candidate(LAB, "lab", scores[1], 0.1))
    lines = drawn(plan_page(decision, POOLS, "Considered")).splitlines()
    assert [line.split()[-1] for line in lines[2:4]] == shown


def test_a_gang_is_said_to_be_wanted_together() -> None:
    wanted = Demand(
        job_id=JobId("j"), project_id=ProjectId("default"), alternatives=(Alternative(ASK),), members=9
    )
    waits = job(JobState.PENDING, demand=wanted, attempts=(), started_at=None, ended_at=None)
    page = drawn(explanation_page(Explanation(job=waits, decision=None, decided_at=None), POOLS, now=1.0))
    assert "needs 9 × (2 cores  4 GiB) together" in page
