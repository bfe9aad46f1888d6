"""Write docs/how-to/run-anywhere.md from the tasks, the golden transcript and the argued differences of the tests.

``--check`` changes nothing and fails when the page is out of date.
"""

import argparse
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "how-to" / "run-anywhere.md"
SCENARIO = ROOT / "tests" / "scenarios" / "same_task"
ENGINES = {"host": "Hosts", "kubernetes": "Kubernetes", "slurm": "Slurm", "ray": "Ray"}
SHOWN = "finishes"
"""The task whose file stands on the page; the others are named."""

BEGINNING = """\
# Run the same file anywhere

A task's file says what to run, not where. The same file runs unchanged on a host, on Kubernetes, on Slurm and on Ray:

<!-- not run: needs every engine; tests/scenarios/same_task has them -->
```console
$ yunhe run train.yaml                        # the platform chooses
$ yunhe run --pool cluster train.yaml         # the same file, on this pool
$ yunhe run --policy cheapest train.yaml      # or by what matters to you
```

What you can rely on wherever it runs:

- `run` and `setup` are scripts: of what their first line names, else of `bash`, else of `sh`. They start in a
  directory of their own, empty but for `workdir`, which is also `HOME`; output and errors come as one log.
- `envs` and `secrets` are there as variables, beside `YUNHE_JOB_ID`, `YUNHE_ATTEMPT` (1, 2, …), `YUNHE_ALLOCATION_ID`,
  `YUNHE_PROJECT_ID`, `YUNHE_CPU_MILLIS`, `YUNHE_MEMORY_MIB`, `YUNHE_GRACE_S` and `YUNHE_NODE_ID`.
- The exit code is the script's own. When a task is stopped or exceeds its time limit, the programs that it has started get
  SIGTERM first, and have its `grace` to save their work before they are killed.
- A retry begins in a fresh directory and may run on another pool.
- The cost is the pool's price times the metered use, to the millionth.
- `workdir` and `file_mounts` lie in the directory before `setup` begins, and `outputs` are fetched after the end, also of
  a task that failed, was stopped or ran out of time. How much may be sent
  differs: a Kubernetes cluster takes 24 MiB compressed for one task, Ray 100 MiB for each archive, hosts and Slurm what
  their disks hold.

Some of a task needs a [power](../reference/plugins.md#powers) that not every engine has: `image` needs images, which Slurm
and Ray have not. A pool that lacks it is not chosen, and `yunhe explain` says so.
"""

ENDING = """\
## How this page is made

`make test-engines` starts all four engines as pools of one platform, runs the files through the command line, and
compares what came of them with the transcript: a difference that is not argued above fails, and so does an argument for
a difference that is not seen. `python tools/transcript_page.py` writes this page from the same files, in
`tests/scenarios/same_task`.
"""


def page() -> str:
    """Return the page."""
    argued = tomllib.loads((SCENARIO / "differences.toml").read_text())["difference"]
    transcript = (SCENARIO / "transcript.txt").read_text()
    task = (SCENARIO / "tasks" / f"{SHOWN}.yaml").read_text()
    parts = [
        BEGINNING,
        f"## A file that looks around\n\n<!-- not run: needs every engine; tests/scenarios/same_task has them -->\n```yaml\n{task}```\n",
        "## What came of it, and of five others, on every engine\n",
        "No names and no times; use is told as bands around what the task did.\n",
        f"```text\n{transcript}```\n",
        "## Where an engine differs\n\nEverything else is the same on all four.\n\n" + _table(argued) + "\n",
        ENDING,
    ]
    return "\n".join(parts)


def _table(argued: list[dict[str, str]]) -> str:
    rows = [
        f"| {ENGINES[one['engine']]} | {', '.join(one['tasks'])} | {one['line']} | {one['instead']} "
        f"| {one['why'].strip()} |"
        for one in argued
    ]
    return "\n".join(["| engine | task | line | reads | why |", "|---|---|---|---|---|", *rows])


def main() -> int:
    """Write the page, or say whether it is out of date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    if PAGE.exists() and PAGE.read_text() == page():
        return 0
    print(f"{PAGE.relative_to(ROOT)} is out of date: run python tools/transcript_page.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
