"""Projects, members, secrets, keys, pools and prices through the API; each change is in the audit log."""

import pytest

from integration.entrypoints.api.conftest import People
from integration.entrypoints.api.serving import Served
from yunhe.control.pools.model import Check, Pool, PoolSpec, PoolState
from yunhe.kernel.errors import ConflictError, ForbiddenError, NotFoundError, UnauthenticatedError
from yunhe.kernel.money import Prices, Tier
from yunhe.trading.accounts.model import EVERY_PROJECT, Role


def actions(people: People) -> list[tuple[str, str, str]]:
    return [(entry.user, entry.action, entry.subject) for entry in people.admin.audit(page=7)]


def test_a_key_tells_who_holds_it(people: People) -> None:
    me = people.ann.me()
    assert me.name == "ann"
    assert [(m.project_id, m.role) for m in me.memberships] == [("blue", Role.MEMBER)]


def test_members_come_and_go(people: People) -> None:
    people.admin.set_member("red", "eve", Role.VIEWER)
    assert {(member.name, member.role) for member in people.bob.members("red")} == {
        ("bob", Role.MEMBER),
        ("eve", Role.VIEWER),
    }
    people.admin.remove_member("red", "eve")
    assert {member.name for member in people.bob.members("red")} == {"bob"}
    assert ("admin", "member remove", "eve") in actions(people)


def test_a_caller_sees_only_their_projects(people: People) -> None:
    assert [project.id for project in people.ann.projects()] == ["blue"]
    assert {project.id for project in people.admin.projects()} >= {"blue", "red", "default"}


def test_what_is_misspelt_is_not_found_with_what_was_meant(people: People) -> None:
    with pytest.raises(NotFoundError) as no_project:
        list(people.admin.jobs(project="bleu"))
    assert "Did you mean blue?" in no_project.value.remedy
    with pytest.raises(NotFoundError):
        people.admin.cost(project="nope")
    with pytest.raises(NotFoundError) as no_pool:
        people.admin.pool("lba")
    assert "Did you mean lab?" in no_pool.value.remedy


def test_an_admin_sees_whose_each_key_is(people: People) -> None:
    keys = people.admin.keys()
    owners = {key.name: key.user for key in keys}
    assert owners["anns"] == "ann"
    assert owners["bobs"] == "bob"
    assert {key.user for key in people.vic.keys()} == {"vic"}  # noqa: SIM118 - a call, not a mapping


def test_a_secret_goes_in_and_never_comes_out(people: People) -> None:
    people.ann.set_secret("blue", "TOKEN", "hunter2")
    assert [secret.name for secret in people.vic.secrets("blue")] == ["TOKEN"]
    assert "hunter2" not in repr(people.vic.secrets("blue"))
    assert "hunter2" not in repr(list(people.admin.audit()))
    people.ann.delete_secret("blue", "TOKEN")
    assert people.ann.secrets("blue") == ()


def test_a_revoked_key_opens_nothing(served: Served, people: People) -> None:
    new = people.ann.create_key("ci")
    with served.client(new.text) as client:
        assert client.me().name == "ann"
        people.ann.revoke_key(new.key.id)
        with pytest.raises(UnauthenticatedError, match="revoked"):
            client.me()
    assert {key.name for key in people.ann.keys()}  # noqa: SIM118 - a call, not a mapping == {"anns", "ci"}


def test_a_pool_is_checked_drained_priced_and_removed(people: People) -> None:
    spec = PoolSpec(name="west", kind="fake", target="west", prices=Prices(cpu_core_hour_micros=50_000))
    *checks, pool = people.admin.add_pool(spec)
    assert all(isinstance(check, Check) and check.ok for check in checks)
    assert isinstance(pool, Pool)
    assert pool.state is PoolState.READY
    assert people.ann.prices("west").tiers[Tier.HIGH].cpu_core_hour_micros == 50_000
    dearer = people.admin.set_prices("west", Prices(cpu_core_hour_micros=60_000))
    assert dearer.version == 2
    assert people.admin.drain_pool("west").standing == "ready, drained"
    assert people.admin.drain_pool("west", on=False).standing == "ready"
    *_, checked = people.admin.check_pool("west")
    assert isinstance(checked, Pool)
    assert {pool.spec.name for pool in people.ann.pools()} == {"lab", "west"}
    people.admin.remove_pool("west")
    with pytest.raises(NotFoundError):
        people.ann.pool("west")
    lines = [entry for entry in people.admin.audit() if entry.subject in {"west", pool.id}]
    assert [(line.action, line.outcome) for line in lines] == [
        ("pool remove", "done"),
        ("pool resume", "done"),
        ("pool drain", "done"),
        ("price set", "done"),
        ("price set", "done"),
        ("pool add", "done"),
        ("pool add", "begun"),
    ]
    assert {line.user for line in lines} == {"admin"}


def test_a_pool_whose_name_is_taken_is_refused(people: People) -> None:
    with pytest.raises(ConflictError, match="already"):
        list(people.admin.add_pool(PoolSpec(name="lab", kind="fake", target="elsewhere")))


def test_a_pool_that_could_not_be_added_is_told_as_begun_and_failed(people: People) -> None:
    with pytest.raises(ConflictError, match="not added"):
        list(people.admin.add_pool(PoolSpec(name="none", kind="fake", target="none", options={"cpus": "-"})))
    lines = [entry.outcome for entry in people.admin.audit() if entry.subject == "none"]
    assert lines == ["failed", "begun"]


def test_nobody_has_said_what_lab_charges(people: People) -> None:
    with pytest.raises(NotFoundError, match="charges"):
        people.ann.prices("lab")


def test_an_operator_manages_pools_and_nothing_more(served: Served, people: People) -> None:
    people.admin.set_member(EVERY_PROJECT, "olga", Role.OPERATOR)
    with served.client(people.admin.create_key("olgas", user="olga").text) as olga:
        *_, pool = olga.add_pool(PoolSpec(name="east", kind="fake", target="east"))
        assert isinstance(pool, Pool)
        olga.remove_pool("east")
        with pytest.raises(ForbiddenError):
            olga.set_member("blue", "olga", Role.ADMIN)
        with pytest.raises(ForbiddenError):
            list(olga.audit())


def test_the_audit_log_is_read_in_pages_newest_first(people: People) -> None:
    entries = list(people.admin.audit(page=3))
    assert len(entries) > 6
    assert [entry.seq for entry in entries] == sorted((entry.seq for entry in entries), reverse=True)
