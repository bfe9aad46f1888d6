"""``/metrics``: who may read it, that a parser of Prometheus's text reads it, and that it tells what happened."""

from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from integration.entrypoints.api.conftest import People
from integration.entrypoints.api.server_process import process, wait_ready
from integration.entrypoints.api.serving import Served, free_port
from yunhe.runtime.settings import ProcessRole, Settings
from yunhe.runtime.start import first_key_path
from yunhe.trading.accounts import model
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task

FAMILIES = {
    "yunhe_build_info": "gauge",
    "yunhe_http_requests": "counter",
    "yunhe_http_request_duration_seconds": "histogram",
    "yunhe_jobs": "gauge",
    "yunhe_placement_cycle_seconds": "histogram",
    "yunhe_placement_decisions": "counter",
    "yunhe_database_transaction_seconds": "histogram",
    "yunhe_leases_held": "gauge",
    "yunhe_pools": "gauge",
    "yunhe_event_loop_lag_seconds": "histogram",
    "yunhe_log_lines": "counter",
    "process_resident_memory_bytes": "gauge",
    "process_cpu_seconds": "counter",
    "process_open_fds": "gauge",
}


def scrape(url: str, key: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.get(f"{url}/metrics", headers=headers, trust_env=False)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture(autouse=True)
def always_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yunhe.observability.metrics.SAMPLED_EVERY_S", 0.0)


def test_a_parser_reads_every_family_of_its_kind_once(served: Served, people: People) -> None:
    answer = scrape(served.url, served.key)
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(answer.text))
    assert len({family.name for family in families}) == len(families)
    assert FAMILIES.items() <= {family.name: family.type for family in families}.items()
    assert all(family.documentation for family in families)


def test_only_an_operator_of_the_platform_may_read_it(served: Served, people: People) -> None:
    people.admin.set_member(model.EVERY_PROJECT, "olga", model.Role.OPERATOR)
    people.admin.set_member(model.EVERY_PROJECT, "vera", model.Role.VIEWER)
    people.admin.set_member("blue", "bert", model.Role.OPERATOR)
    keys = {user: people.admin.create_key("k", user=user).text for user in ("olga", "vera", "bert")}
    assert scrape(served.url, keys["olga"]).status_code == 200
    assert scrape(served.url, served.key).status_code == 200
    for key in (keys["vera"], keys["bert"], people.keys["ann"]):
        assert scrape(served.url, key).status_code == 403
    assert scrape(served.url, "").status_code == 401
    denied = [entry.subject for entry in people.admin.audit() if entry.outcome == "denied"]
    assert "metrics" in denied


def test_what_happens_is_counted_by_the_template_of_the_route(served: Served, people: People) -> None:
    def count(route: str, status: int) -> float:
        labels = (("method", "GET"), ("route", route), ("status", str(status)))
        return samples(scrape(served.url, served.key).text).get(("yunhe_http_requests_total", labels), 0.0)

    routes = (("/v1/jobs/{job_id}", 404), ("unmatched", 404))
    before = [count(*route) for route in routes]
    headers = {"Authorization": f"Bearer {served.key}"}
    for number in range(5):
        httpx.get(f"{served.url}/v1/jobs/job_{number}", headers=headers, trust_env=False)
        httpx.get(f"{served.url}/odd/{number}", trust_env=False)
    assert [count(*route) for route in routes] == [number + 5 for number in before]
    text = scrape(served.url, served.key).text
    assert "job_1" not in text
    assert "/odd" not in text


def test_jobs_pools_decisions_and_transactions_are_told(served: Served, people: People) -> None:
    before = samples(scrape(served.url, served.key).text)
    job = people.admin.submit(Submission(task=Task(run="echo hi")))
    assert list(people.admin.watch(job.id))[-1].state == "succeeded"
    after = samples(scrape(served.url, served.key).text)

    def grew(name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0.0)

    assert grew("yunhe_jobs", state="succeeded") == 1
    assert grew("yunhe_placement_decisions_total", outcome="placed") >= 1
    assert grew("yunhe_placement_cycle_seconds_count") >= 1
    assert grew("yunhe_database_transaction_seconds_count", operation="write") >= 1
    assert grew("yunhe_database_transaction_seconds_count", operation="read") >= 1
    assert after["yunhe_pools", (("state", "ready"),)] == 1
    assert after["yunhe_leases_held", (("table", "orchestration_job"),)] >= 0
    assert after["process_resident_memory_bytes", ()] > 10 << 20


def test_a_worker_tells_its_own(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", port=free_port(), role=ProcessRole.WORKER)
    url = f"http://127.0.0.1:{settings.port}"
    with process(settings):
        wait_ready(url)
        told = samples(scrape(url, first_key_path(settings.home).read_text().strip()).text)
        assert scrape(url, "").status_code == 401
    assert ("yunhe_placement_cycle_seconds_count", ()) in told
    assert told["yunhe_http_requests_total", (("method", "GET"), ("route", "/ready"), ("status", "200"))] >= 1
