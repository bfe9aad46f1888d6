"""Write docs/reference from the code: the commands from their own help, the task from its schema.

``--check`` changes nothing and fails when a page is out of date.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["COLUMNS"] = "88"  # the width of a page, whoever runs this

from yunhe.entrypoints.cli.main import COMMANDS, help_text
from yunhe.entrypoints.cli.terminal.shell import group
from yunhe.trading.demand.planned import PLAN_ONLY, RESOURCE_FIELDS, TASK_FIELDS, UnsupportedField
from yunhe.trading.demand.schema import task_schema
from yunhe.trading.demand.skypilot.cases import CASES

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"


def pages() -> dict[str, str]:
    """Return every generated page by its file name."""
    return {"cli.md": cli_page(), "task.md": task_page(), "skypilot.md": skypilot_page()}


def cli_page() -> str:
    """Return the page of commands."""
    lines = [
        "# Commands",
        "",
        "Generated from the commands' own help by `python tools/reference.py`.",
        "",
        "```text",
        help_text().rstrip(),
        "```",
        "",
        "Every read has `--output json`. Errors go to standard error as a problem and its remedy, with",
        "`--output json` as problem JSON (RFC 9457). Exit codes: 0 done, 1 refused, 2 wrongly called, 3 no pool can take it,",
        "130 interrupted;",
        "`run` and `exec` leave with the job's or the command's own. `NO_COLOR` is honoured; colours and spinners appear",
        "only on a terminal. `YUNHE_URL`, `YUNHE_KEY` and `YUNHE_PROJECT` take precedence over the saved context; `YUNHE_HOME`",
        "moves `~/.yunhe`.",
        "",
    ]
    root = group(COMMANDS)
    context = root.make_context("yunhe", [], resilient_parsing=True)
    for name, entry in COMMANDS.items():
        if not entry.given:
            lines += _section(root.get_command(context, name), f"yunhe {name}", context)
    return "\n".join(lines)


def _section(command: Any, path: str, parent: Any) -> list[str]:
    context = command.make_context(path.rsplit(maxsplit=1)[-1], [], parent=parent, resilient_parsing=True)
    level = "##" if path.count(" ") == 1 else "###"
    lines = [f"{level} {path}", "", "```text", command.get_help(context).rstrip(), "```", ""]
    for name, child in getattr(command, "commands", {}).items():
        lines += _section(child, f"{path} {name}", context)
    return lines


def task_page() -> str:
    """Return the page of a task's fields."""
    schema: dict[str, Any] = task_schema()
    fields: dict[str, Any] = schema["properties"]
    lines = [
        "# The task",
        "",
        "Generated from the schema by `python tools/reference.py`; the schema itself is printed by",
        "`yunhe run --schema` and served at `/v1/schema/task`.",
        "",
        "A task is a YAML file. Only `run` is needed. A field that is accepted is honoured; one that is not honoured yet",
        "is refused, with what to do instead. All problems of a file are told at once.",
        "",
        *_table({name: field for name, field in fields.items() if name != "resources"}),
        "## resources",
        "",
        fields["resources"]["description"],
        "",
        *_table(fields["resources"]["properties"]),
        "## What a job finds",
        "",
        "It runs as its project's own user in a directory of its own, which is also its `HOME`: `workdir` and",
        "`file_mounts` lie there before `setup` begins. The limits are kept: more memory than asked ends the job",
        "(`out-of-memory`), more cores than asked are not given. With `image` all of that holds inside a container of it",
        "([how](../how-to/run-in-a-container.md)).",
        "",
        "## Planned only",
        "",
        "`yunhe plan` decides and explains these, as if they could be carried out; `yunhe run` refuses them.",
        "",
        *_refused("", PLAN_ONLY),
        "",
        "## Refused for now",
        "",
        *_refused("", TASK_FIELDS),
        *_refused("resources.", RESOURCE_FIELDS),
        "",
    ]
    return "\n".join(lines)


def skypilot_page() -> str:
    """Return the page of SkyPilot's fields."""
    lines = [
        "# SkyPilot's task files",
        "",
        "Generated from the table in `src/yunhe/trading/demand/skypilot/cases.py` by `python tools/reference.py`.",
        "",
        "`yunhe run` and `yunhe plan` read SkyPilot's task files as they are. `yunhe plan --explain-fields FILE` shows for each",
        "field of a file which of these rows holds for it:",
        "",
        "| here | meaning |",
        "|---|---|",
        "| honoured | it does here what it does there |",
        "| meaning | it is accepted, and means what is said beside it |",
        "| note | it is accepted, and changes neither what runs, nor where, nor its price |",
        "| planned only | `plan` reads it and plans; `run` refuses it, with the reason and what to do instead |",
        "| refused | both refuse it, with what to do instead |",
        "",
        "| field | form | here | what becomes of it |",
        "|---|---|---|---|",
    ]
    for case in CASES.values():
        cells = [f"`{case.field}`", f"`{case.form}`", case.effect, case.says]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    lines += [
        "",
        "A field that is in no row and is none of [ours](task.md) is refused, with the nearest that there is. Files may have",
        "fields of both. Options take the place of fields: `--infra '*'` lifts `infra`, `--env NAME=value` gives a variable",
        "that has none, `--image` names an image in place of `image_id`.",
        "",
    ]
    return "\n".join(lines)


def _table(fields: dict[str, Any]) -> list[str]:
    lines = ["| field | meaning | example |", "|---|---|---|"]
    for name, field in fields.items():
        examples = [f"`{_yaml(example)}`" for example in field.get("examples", [])]
        lines.append(f"| `{name}` | {field['description'].replace('|', '/')} | {' · '.join(examples)} |")
    return [*lines, ""]


def _yaml(example: object) -> str:
    return example if isinstance(example, str) else json.dumps(example)


def _refused(prefix: str, fields: dict[str, UnsupportedField]) -> list[str]:
    return [f"- `{prefix}{name}`: {planned.instead}" for name, planned in fields.items()]


def main() -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [name for name, text in pages().items() if _current(name) != text]
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run python tools/reference.py")
        return 1
    for name in stale:
        REFERENCE.mkdir(parents=True, exist_ok=True)
        (REFERENCE / name).write_text(pages()[name])
        print(f"wrote docs/reference/{name}")
    return 0


def _current(name: str) -> str:
    path = REFERENCE / name
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
