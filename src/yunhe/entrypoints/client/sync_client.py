"""The same client for programs without an event loop; no thread is started."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from yunhe.entrypoints.client.async_client import PATIENCE_S, AsyncClient
from yunhe.entrypoints.client.blocking_transport import BlockingTransport
from yunhe.entrypoints.client.transport import Address, iterate, run

T = TypeVar("T")
P = ParamSpec("P")


def _call(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Client", P], T]:
    """Return *method* as one that returns when it is done."""

    @wraps(method)
    def call(client: "Client", *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(client.async_client, *args, **kwargs))

    return call


def _stream(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate["Client", P], Generator[T, None, None]]:
    """Return *method* as one that returns a plain generator."""

    @wraps(method)
    def stream(client: "Client", *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return iterate(method(client.async_client, *args, **kwargs))

    return stream


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
        transport = BlockingTransport(Address(url.rstrip("/"), key, verify))
        self.async_client = AsyncClient(url, key, verify=verify, patience_s=patience_s, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    close = _call(AsyncClient.close)
    ready = _call(AsyncClient.ready)
    modules = _call(AsyncClient.modules)
    task_schema = _call(AsyncClient.task_schema)
    me = _call(AsyncClient.me)
    plan = _call(AsyncClient.plan)
    pareto = _call(AsyncClient.pareto)
    plan_together = _call(AsyncClient.plan_together)
    save_plan = _call(AsyncClient.save_plan)
    run_plan = _call(AsyncClient.run_plan)
    render_plan = _call(AsyncClient.render_plan)
    submit = _call(AsyncClient.submit)
    submit_batch = _call(AsyncClient.submit_batch)
    jobs = _stream(AsyncClient.jobs)
    job = _call(AsyncClient.job)
    watch = _stream(AsyncClient.watch)
    logs = _stream(AsyncClient.logs)
    stop = _call(AsyncClient.stop)
    resize = _call(AsyncClient.resize)
    explain = _call(AsyncClient.explain)
    ask_nodes = _call(AsyncClient.ask_nodes)
    usage = _call(AsyncClient.usage)
    outputs = _call(AsyncClient.outputs)
    files = _call(AsyncClient.files)
    put_together = _call(AsyncClient.put_together)
    put_chunks = _call(AsyncClient.put_chunks)
    upload_directory = _call(AsyncClient.upload_directory)
    pools = _call(AsyncClient.pools)
    pool = _call(AsyncClient.pool)
    add_pool = _stream(AsyncClient.add_pool)
    check_pool = _stream(AsyncClient.check_pool)
    pool_facts = _call(AsyncClient.pool_facts)
    set_pool_facts = _call(AsyncClient.set_pool_facts)
    drain_pool = _call(AsyncClient.drain_pool)
    cordon_node = _call(AsyncClient.cordon_node)
    graph = _call(AsyncClient.graph)
    plugins = _call(AsyncClient.plugins)
    plugin = _call(AsyncClient.plugin)
    add_plugin = _stream(AsyncClient.add_plugin)
    plugin_folders = _call(AsyncClient.plugin_folders)
    allow_plugins = _call(AsyncClient.allow_plugins)
    disallow_plugins = _call(AsyncClient.disallow_plugins)
    remove_plugin = _call(AsyncClient.remove_plugin)
    remove_pool = _call(AsyncClient.remove_pool)
    prices = _call(AsyncClient.prices)
    set_prices = _call(AsyncClient.set_prices)
    projects = _call(AsyncClient.projects)
    create_project = _call(AsyncClient.create_project)
    project = _call(AsyncClient.project)
    set_project = _call(AsyncClient.set_project)
    members = _call(AsyncClient.members)
    set_member = _call(AsyncClient.set_member)
    remove_member = _call(AsyncClient.remove_member)
    secrets = _call(AsyncClient.secrets)
    set_secret = _call(AsyncClient.set_secret)
    delete_secret = _call(AsyncClient.delete_secret)
    keys = _call(AsyncClient.keys)
    create_key = _call(AsyncClient.create_key)
    rotate_key = _call(AsyncClient.rotate_key)
    revoke_key = _call(AsyncClient.revoke_key)
    audit = _stream(AsyncClient.audit)
    cost = _call(AsyncClient.cost)
    chain_head = _call(AsyncClient.chain_head)
    audit_export = _stream(AsyncClient.audit_export)
    ledger = _stream(AsyncClient.ledger)
