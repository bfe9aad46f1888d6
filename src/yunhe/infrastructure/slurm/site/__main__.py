"""The helper's command line. People do not type it: the platform and the jobs do."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import sys

# Each command imports what it needs and no more: a job's overseer stays for as long as the job.


def main() -> int:
    """Run one of the helper's processes."""
    arguments = _parser().parse_args()
    if arguments.command == "job":
        from yunhe.infrastructure.slurm.site.job import run_job  # noqa: PLC0415

        return run_job(arguments.run)
    if arguments.command == "beside":
        from yunhe.infrastructure.slurm.site.beside import become_command  # noqa: PLC0415

        return become_command(arguments.run, arguments.argv)
    if arguments.command == "probe":
        from yunhe.infrastructure.slurm.site.probe import answer_probe  # noqa: PLC0415

        return answer_probe(arguments.path)
    if arguments.command == "archive":
        from yunhe.agent.files.archives import pack_job, unpack_job  # noqa: PLC0415

        work = {"pack": pack_job, "unpack": unpack_job}[arguments.job]
        work(json.loads(arguments.order), [int(handle) for handle in arguments.handles.split(",")])
        return 0
    return _serve(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    from yunhe.infrastructure.slurm.site.programs import SiteSettings  # noqa: PLC0415
    from yunhe.infrastructure.slurm.site.server import SlurmSite  # noqa: PLC0415

    settings = SiteSettings(
        root=os.path.realpath(os.path.expanduser(arguments.root)),
        partition=arguments.partition,
        account=arguments.account,
        qos=arguments.qos,
        time_limit_s=arguments.time_limit_s,
        python=arguments.python,
        configuration=arguments.configuration,
        programs=arguments.programs,
    )
    program = os.path.abspath(sys.argv[0])
    with open(program, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()

    async def serve() -> None:
        await SlurmSite(settings, program, digest).serve()

    asyncio.run(serve())
    sys.stdout.flush()
    os._exit(
        0
    )  # a thread may still wait for Slurm; what it does is on the disk, and nobody listens here any more


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="yunhe-slurm", description="Serves a Slurm site to a platform.")
    commands = parser.add_subparsers(dest="command", required=True)
    bridge = commands.add_parser("bridge", help="answer a platform on standard input and output")
    bridge.add_argument("--root", required=True, help="directory on the site's shared file system")
    bridge.add_argument("--time-limit-s", type=int, default=0)
    bridge.add_argument("--python", default="python3", help="Python of the compute nodes")
    for name in ("partition", "account", "qos", "configuration", "programs"):
        bridge.add_argument(f"--{name}", default="")
    for name in ("job", "beside"):
        command = commands.add_parser(name, help="run on a compute node")
        command.add_argument("--run", required=True, help="directory of the allocation")
        if name == "beside":
            command.add_argument("argv", nargs="+")
    probe = commands.add_parser("probe", help="say that a job runs")
    probe.add_argument("--path", required=True)
    archive = commands.add_parser("archive", help="pack or unpack files")
    archive.add_argument("job", choices=("pack", "unpack"))
    archive.add_argument("--order", required=True)
    archive.add_argument("--handles", required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
