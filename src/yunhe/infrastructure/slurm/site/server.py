"""Answers the platform on standard input and output, from the site's directory and Slurm's programs."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from yunhe.agent import AGENT_VERSION, OLDEST_PROTOCOL, PROTOCOL
from yunhe.agent.daemon.server import (
    FOLLOW_EVERY_S,
    MINUTES_PER_PART,
    OBSERVED_PER_PART,
    AgentConnection,
    Handler,
    answer,
    log_part,
)
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.frames import CHUNK_BYTES
from yunhe.agent.protocol.refusals import INVALID, UNSUPPORTED, Refusal
from yunhe.agent.protocol.shapes import SHAPES, record
from yunhe.agent.runs.logs import end_of_log, read_log
from yunhe.agent.runs.processes import boot_id
from yunhe.infrastructure.slurm.site import answers, usage
from yunhe.infrastructure.slurm.site.beside import JobCommands
from yunhe.infrastructure.slurm.site.commands import LIVE, Commands
from yunhe.infrastructure.slurm.site.files import SiteFiles
from yunhe.infrastructure.slurm.site.ledger import Ledger
from yunhe.infrastructure.slurm.site.nodes import Landscape, account_of, catalogue_of, read_landscape
from yunhe.infrastructure.slurm.site.probe import check_site
from yunhe.infrastructure.slurm.site.programs import SiteSettings, Slurm
from yunhe.infrastructure.slurm.site.watch import SlurmWatch, poll_s

THREADS = 16
LANDSCAPE_AGE_S = 10.0
HEAR_WITHIN_S = 1.0
"""How long an observer waits for squeue before it makes do with what the jobs have written."""
POWERS = ("pause", "files", "exec")
NEVER = {
    "resize": "Slurm changes only the time limit of a running job; its cores and memory stay as it began.",
    "pin": "Slurm chooses a job's cores and binds it to them itself.",
    "forward": "Slurm has no way to a port of a job: use ssh -L PORT:NODE:PORT LOGIN-NODE, with the node that yunhe ps names.",
    "images": "This site runs scripts on its nodes; containers need a runtime that its owner sets up.",
    "gang": "Each allocation is one job on one node; several are not begun together.",
    "services": "Slurm runs jobs that end; it neither restarts nor balances services.",
    "checkpoint": "Slurm has had no checkpoint of its own since version 20.02.",
    "volumes": "The site's file systems are its own; only an allocation's directory is ours.",
}
_SHAPES = {**SHAPES, "catalogue": record({}), "check": record({})}


class SlurmSite:
    """One helper."""

    def __init__(self, settings: SiteSettings, program: str, digest: str) -> None:
        self._settings = settings
        self._digest = digest
        self._program = program
        self._slurm = Slurm(settings)
        self._ledger = Ledger(settings.root)
        self._threads = ThreadPoolExecutor(THREADS)
        self._landscape: Landscape | None = None
        self._configuration: dict[str, str] = {}
        self._watch = SlurmWatch(self._ledger, self._slurm, accounting=self._keeps_accounts)
        self._commands = Commands(self._ledger, self._slurm, self._watch, settings, program)
        self._change = asyncio.Event()
        self._asking: asyncio.Future[Any] | None = None
        beside = JobCommands(self._ledger, self._slurm, self._watch, settings, program)
        files = SiteFiles(self._ledger, program, self._aside)
        commands = self._commands
        self._handlers: dict[str, Handler] = {
            "hello": self._hello,
            "describe": self._describe,
            "account": self._account,
            "catalogue": self._catalogue,
            "inventory": self._inventory,
            "check": self._check,
            "observe": self._observe,
            "logs": self._logs,
            "usage": self._usage,
            "launch": self._command(lambda body: commands.launch(body, self._fresh_landscape)),
            "stop": self._command(commands.stop),
            "release": self._command(commands.release),
            "pause": self._command(lambda body: commands.suspend(body, "suspend", self._missing())),
            "resume": self._command(lambda body: commands.suspend(body, "resume", self._missing())),
            "resize": self._never("resize"),
            "pin": self._never("pin"),
            "put_archive": files.put,
            "get_archive": files.get,
            "exec": beside.run,
            "forward": self._never("forward"),
        }

    async def serve(self) -> None:
        """Serve standard input and output until the platform hangs up."""
        await self._aside(self._ledger.sweep)
        loop = asyncio.get_event_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        await AgentConnection(self, reader, writer).run()
        self._threads.shutdown(wait=False)

    async def handle(self, call: Call) -> None:
        """Answer *call*, with a refusal if need be."""
        await answer(call, self._handlers, _SHAPES)

    async def _aside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run what may wait for a disk, a lock or Slurm in a thread."""
        return await asyncio.get_event_loop().run_in_executor(self._threads, work, *arguments)

    def _command(self, command: Callable[[dict[str, Any]], None]) -> Handler:
        async def handle(call: Call) -> None:
            try:
                await self._aside(command, call.body)
            finally:
                self._watch.queue.expire()
                self._change.set()
                self._change = asyncio.Event()
            await call.answer({})

        return handle

    def _never(self, power: str) -> Handler:
        async def handle(_call: Call) -> None:
            raise Refusal(UNSUPPORTED, NEVER[power])

        return handle

    # What it is

    async def _hello(self, call: Call) -> None:
        newest = min(PROTOCOL, call.body["protocol"])
        if newest < max(OLDEST_PROTOCOL, call.body["oldest_protocol"]):
            raise Refusal(INVALID, "The platform and this helper have no protocol in common.")
        about = {"protocol": newest, "agent_version": AGENT_VERSION, "digest": self._digest}
        about.update(boot_id=boot_id(), pid=os.getpid(), python=sys.version.split()[0])
        await call.answer(about)

    async def _describe(self, call: Call) -> None:
        missing = await self._aside(self._missing)
        version = (await self._aside(self._config)).get("SLURM_VERSION", "of unknown version")
        await call.answer(
            {
                "engine": "slurm",
                "version": f"Slurm {version}",
                "powers": [power for power in POWERS if power not in missing],
                "missing": missing,
                "isolation": "one-project",
                "limits": "Slurm's own",
                "network_metered": False,
            }
        )

    def _missing(self) -> dict[str, str]:
        """Return what this site cannot do for us, each with the reason."""
        owner, user = self._config().get("SlurmUser", "").partition("(")[0], getpass.getuser()
        level = ""
        if self._keeps_accounts():
            asked = ["where", f"name={user}", "format=adminlevel"]
            level = self._slurm.ask("sacctmgr", "-nP", "show", "user", *asked).strip()
        if os.geteuid() == 0 or user == owner or level in ("Operator", "Administrator"):
            return dict(NEVER)
        return {**NEVER, "pause": "Slurm lets only its operators suspend a job, and this account is not one."}

    def _config(self) -> dict[str, str]:
        if not self._configuration:
            self._configuration = answers.settings(self._slurm.ask("scontrol", "show", "config"))
        return self._configuration

    def _keeps_accounts(self) -> bool:
        return self._config().get("AccountingStorageType") == "accounting_storage/slurmdbd"

    def _fresh_landscape(self, age_s: float = LANDSCAPE_AGE_S) -> Landscape:
        if self._landscape is None or time.time() - self._landscape.taken_at > age_s:
            self._landscape = read_landscape(self._slurm, self._settings)
        return self._landscape

    async def _account(self, call: Call) -> None:
        configuration = await self._aside(self._config)
        await call.answer(await self._aside(account_of, self._slurm, self._settings, configuration))

    async def _catalogue(self, call: Call) -> None:
        await call.answer(catalogue_of(await self._aside(self._fresh_landscape)))

    async def _inventory(self, call: Call) -> None:
        landscape = await self._aside(self._fresh_landscape, 1.0)
        await call.answer({"taken_at": landscape.taken_at, "nodes": list(landscape.nodes.values())})

    async def _check(self, call: Call) -> None:
        async def tell(check: dict[str, Any]) -> None:
            await call.part({"check": check})

        await check_site(self._slurm, self._settings, self._program, tell)
        await call.answer({})

    # What came of it

    async def _observe(self, call: Call) -> None:
        until = time.monotonic() + call.body.get("wait_s", 0.0)
        while True:
            change = self._change
            await self._hear()
            beyond = call.body.get("beyond", -1)
            seen, told = await self._aside(self._watch.look_all, beyond if call.body.get("changes") else -1)
            left_s = until - time.monotonic()
            if told["version"] != beyond or left_s <= 0:
                break
            try:
                await asyncio.wait_for(change.wait(), min(left_s, poll_s(self._watch.count())))
            except asyncio.TimeoutError:
                continue
        for start in range(0, len(seen), OBSERVED_PER_PART):
            await call.part({"allocations": seen[start : start + OBSERVED_PER_PART]})
        await call.answer(told)

    async def _hear(self) -> None:
        """Ask squeue if it is time to; it is not waited for if it takes long."""
        queue = self._watch.queue
        if self._asking is None and queue.due() and await self._aside(self._watch.waits_for_slurm):
            loop = asyncio.get_event_loop()
            self._asking = asyncio.ensure_future(loop.run_in_executor(self._threads, queue.ask))
        asking = self._asking
        if asking is not None:
            await asyncio.wait([asking], timeout=HEAR_WITHIN_S)
            if asking.done() and self._asking is asking:  # others wait here too, and may have gone on already
                self._asking = None

    async def _logs(self, call: Call) -> None:
        run = self._ledger.known(call.body["allocation_id"])
        offset = call.body.get("offset", 0)
        while True:
            # Ask whether it lives before reading: what it wrote last is then in the log.
            more = call.body.get("follow", False) and await self._aside(self._lives, run.id)
            start, data = await self._aside(read_log, run.log, offset, CHUNK_BYTES)
            if data:
                offset = start + len(data)
                await call.part(await self._aside(log_part, call, run.log, start, offset), data)
            elif more:
                await asyncio.sleep(2 * FOLLOW_EVERY_S)
                await self._hear()
            else:
                break
        await call.answer({"end": end_of_log(run.log)})

    def _lives(self, name: str) -> bool:
        seen = self._watch.look(name)
        return seen is not None and seen["phase"] in LIVE

    async def _usage(self, call: Call) -> None:
        names = await self._aside(self._ledger.names)
        minutes = await self._aside(usage.collect, self._ledger, names, call.body.get("beyond", -1))
        told = [{key: value for key, value in one.items() if key != "until_ms"} for one in minutes]
        for start in range(0, len(told), MINUTES_PER_PART):
            await call.part({"minutes": told[start : start + MINUTES_PER_PART]})
        await call.answer({})
