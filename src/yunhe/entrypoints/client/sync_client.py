"""The same client for programs without an event loop; no thread is started."""

from collections.abc import Generator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from yunhe.control.plugins.model import Plugin
from yunhe.control.pools.model import Check, Pool, PoolSpec, UsageMinute
from yunhe.entrypoints.client.archive import Archive
from yunhe.entrypoints.client.async_client import PAGE, PATIENCE_S, AsyncClient
from yunhe.entrypoints.client.transport import Address, iterate, run
from yunhe.entrypoints.client.waiting import WaitingTransport
from yunhe.entrypoints.wire import ModuleRow, Readiness
from yunhe.kernel.ids import BlobId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import NodeAnswers, Plan
from yunhe.scheduling.orchestration.jobs.model import Explanation, Job, LogPiece
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.perception.model import ResourceGraph
from yunhe.trading.accounts.model import AuditEntry, Key, Member, NewKey, Principal, Project, Role, SecretInfo
from yunhe.trading.applications.model import Submission
from yunhe.trading.trades.model import CostReport, LedgerLine, PriceList


class Client:
    """A Yunhe server, as a script sees it; every method is ``AsyncClient``'s, run to its end."""

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        verify: bool | str | Path = True,
        patience_s: float = PATIENCE_S,
    ) -> None:
        transport = WaitingTransport(Address(url.rstrip("/"), key, verify))
        self._of = AsyncClient(url, key, verify=verify, patience_s=patience_s, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections."""
        run(self._of.close())

    def ready(self) -> Readiness:
        """Return whether the server can serve; raise when it cannot be reached."""
        return run(self._of.ready())

    def modules(self) -> tuple[ModuleRow, ...]:
        """Return the table of modules."""
        return run(self._of.modules())

    def task_schema(self) -> dict[str, Any]:
        """Return the JSON schema of a task."""
        return run(self._of.task_schema())

    def me(self) -> Principal:
        """Return who the key belongs to."""
        return run(self._of.me())

    def plan(self, submission: Submission) -> Plan:
        """Return where a task would go now; nothing is promised."""
        return run(self._of.plan(submission))

    def submit(self, submission: Submission, *, idempotency_key: str = "") -> Job:
        """Submit a task."""
        return run(self._of.submit(submission, idempotency_key=idempotency_key))

    def submit_batch(
        self, submissions: Iterable[Submission], *, idempotency_key: str = ""
    ) -> tuple[Job, ...]:
        """Submit tasks together: all are accepted, or none."""
        return run(self._of.submit_batch(submissions, idempotency_key=idempotency_key))

    def jobs(
        self,
        *,
        project: str = "",
        states: Iterable[JobState] = (),
        name: str = "",
        pool: str = "",
        page: int = PAGE,
    ) -> Generator[Job, None, None]:
        """Yield jobs, newest first; pages of *page* are fetched as they are needed."""
        return iterate(self._of.jobs(project=project, states=states, name=name, pool=pool, page=page))

    def job(self, job_id: str) -> Job:
        """Return one job."""
        return run(self._of.job(job_id))

    def watch(self, job_id: str) -> Generator[Job, None, None]:
        """Yield a job now and whenever it changes, until it has ended; a dropped connection is taken up again."""
        return iterate(self._of.watch(job_id))

    def logs(
        self, job_id: str, *, attempt: int = 0, offset: int = 0, follow: bool = False
    ) -> Generator[LogPiece, None, None]:
        """Yield the output of one attempt, or of all (0), from *offset*; followed, until the job has ended."""
        return iterate(self._of.logs(job_id, attempt=attempt, offset=offset, follow=follow))

    def stop(self, job_id: str) -> Job:
        """Ask a job to end; one that has ended stays as it is."""
        return run(self._of.stop(job_id))

    def resize(self, job_id: str, resources: Resources) -> Job:
        """Change a running job's limits in place; zero in a dimension keeps it."""
        return run(self._of.resize(job_id, resources))

    def explain(self, job_id: str) -> Explanation:
        """Return why a job is where it is, or why it waits."""
        return run(self._of.explain(job_id))

    def ask_nodes(self, job_id: str, node: str = "") -> NodeAnswers:
        """Return how many nodes of each pool would refuse a job now, by rule, and what one *node* says."""
        return run(self._of.ask_nodes(job_id, node))

    def usage(self, job_id: str) -> tuple[UsageMinute, ...]:
        """Return what a job used, minute by minute."""
        return run(self._of.usage(job_id))

    def outputs(self, job_id: str, to_path: Path) -> int:
        """Write what a job left as outputs to *to_path*, a gzip-compressed tar; return its size in bytes."""
        return run(self._of.outputs(job_id, to_path))

    def files(self, job_id: str, paths: Iterable[str], to_path: Path) -> int:
        """Write files of a running job to *to_path*, a gzip-compressed tar; return its size in bytes."""
        return run(self._of.files(job_id, paths, to_path))

    def upload(self, project: str, archive: Archive) -> BlobId:
        """Send an archive, unless the project has it already."""
        return run(self._of.upload(project, archive))

    def upload_directory(self, project: str, source: Path) -> BlobId:
        """Pack a directory's contents, or one file, and send them; what has not changed is not sent again."""
        return run(self._of.upload_directory(project, source))

    def pools(self, *, level: str = "") -> tuple[Pool, ...]:
        """Return every pool, or those at one level: end, edge or central."""
        return run(self._of.pools(level=level))

    def pool(self, pool: str) -> Pool:
        """Return one pool, by name or ID."""
        return run(self._of.pool(pool))

    def add_pool(self, spec: PoolSpec) -> Generator[Check | Pool, None, None]:
        """Register a pool: yield each check as it is made, then the pool."""
        return iterate(self._of.add_pool(spec))

    def check_pool(self, pool: str) -> Generator[Check | Pool, None, None]:
        """Yield what works on a pool and what does not, then the pool."""
        return iterate(self._of.check_pool(pool))

    def drain_pool(self, pool: str, *, on: bool = True) -> Pool:
        """Take no new work on a pool, or take it again."""
        return run(self._of.drain_pool(pool, on=on))

    def cordon_node(self, pool: str, node: str, *, on: bool = True) -> Pool:
        """Take no new work on one node of a pool, or take it again."""
        return run(self._of.cordon_node(pool, node, on=on))

    def graph(self, pool: str = "") -> ResourceGraph:
        """Return how clusters, nodes and resources belong together; of one pool, or of all."""
        return run(self._of.graph(pool))

    def plugins(self) -> tuple[Plugin, ...]:
        """Return every plugin, in process or not."""
        return run(self._of.plugins())

    def plugin(self, name: str) -> Plugin:
        """Return one plugin."""
        return run(self._of.plugin(name))

    def add_plugin(self, directory: str, *, upgrades: str = "") -> Generator[Check | Plugin, None, None]:
        """Let the platform start the plugin in a folder of its machine: yield each step, then the plugin."""
        return iterate(self._of.add_plugin(directory, upgrades=upgrades))

    def remove_plugin(self, name: str, *, force: bool = False) -> None:
        """Call a plugin no more; refused while pools are of its kind, unless *force*."""
        return run(self._of.remove_plugin(name, force=force))

    def remove_pool(self, pool: str, *, force: bool = False) -> None:
        """Forget a pool that has no work left; with *force*, even if it has or does not answer."""
        return run(self._of.remove_pool(pool, force=force))

    def prices(self, pool: str) -> PriceList:
        """Return what a pool charges now."""
        return run(self._of.prices(pool))

    def set_prices(self, pool: str, high: Prices, tiers: dict[Tier, Prices] | None = None) -> PriceList:
        """Set what a pool charges from now on; medium and low follow from *high* unless given."""
        return run(self._of.set_prices(pool, high, tiers))

    def projects(self) -> tuple[Project, ...]:
        """Return the projects the caller may see."""
        return run(self._of.projects())

    def create_project(self, project: str) -> Project:
        """Make a project; one that exists is returned as it is."""
        return run(self._of.create_project(project))

    def members(self, project: str) -> tuple[Member, ...]:
        """Return who belongs to a project."""
        return run(self._of.members(project))

    def set_member(self, project: str, user: str, role: Role) -> Member:
        """Give a user, made when new, a role in a project."""
        return run(self._of.set_member(project, user, role))

    def remove_member(self, project: str, user: str) -> None:
        """Take a user out of a project."""
        return run(self._of.remove_member(project, user))

    def secrets(self, project: str) -> tuple[SecretInfo, ...]:
        """Return the names of a project's secrets."""
        return run(self._of.secrets(project))

    def set_secret(self, project: str, name: str, value: str) -> SecretInfo:
        """Keep a secret, encrypted."""
        return run(self._of.set_secret(project, name, value))

    def delete_secret(self, project: str, name: str) -> None:
        """Forget a secret."""
        return run(self._of.delete_secret(project, name))

    def keys(self) -> tuple[Key, ...]:
        """Return one's own keys; an admin of the platform sees all."""
        return run(self._of.keys())

    def create_key(self, name: str, *, user: str = "", expires_in_s: float | None = None) -> NewKey:
        """Make a key for oneself, or as admin for *user*; not repeated when the answer is lost."""
        return run(self._of.create_key(name, user=user, expires_in_s=expires_in_s))

    def revoke_key(self, key_id: str) -> Key:
        """End a key."""
        return run(self._of.revoke_key(key_id))

    def audit(self, *, page: int = PAGE) -> Generator[AuditEntry, None, None]:
        """Yield the audit log, newest first."""
        return iterate(self._of.audit(page=page))

    def cost(  # noqa: PLR0913 - one for each parameter of the query
        self,
        *,
        by: str = "job",
        project: str = "",
        job: str = "",
        since: float | None = None,
        until: float | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> CostReport:
        """Return what was used and is owed, by job, project or pool; more lines follow at its ``next_cursor``."""
        return run(
            self._of.cost(
                by=by, project=project, job=job, since=since, until=until, cursor=cursor, limit=limit
            )
        )

    def ledger(self, *, project: str = "") -> Generator[LedgerLine, None, None]:
        """Yield the ledger from its first line; the content of other projects' entries is masked."""
        return iterate(self._of.ledger(project=project))
