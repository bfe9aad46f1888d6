"""The task as a published JSON schema, for editors, other languages and the reference page.

The schema says what can be said of one field; ``parse`` also judges fields together (and is what decides).
A document that ``parse`` accepts is valid here.
"""

from yunhe.kernel.confinement import NETWORKS, RUNTIMES
from yunhe.kernel.money import Tier
from yunhe.kernel.places import Level
from yunhe.scheduling.decision.model import Policy
from yunhe.trading.demand import amounts, parse
from yunhe.trading.demand.model import SCORE_TERMS
from yunhe.trading.demand.part_fields import MOST_COMPONENTS, MOST_LINKS, MOST_MEMBERS, OBJECTIVE_PARTS
from yunhe.trading.demand.placement_fields import PLACEMENT_FIELDS
from yunhe.trading.demand.planned import SERVICE_FIELDS
from yunhe.trading.demand.python_fields import VERSION
from yunhe.trading.demand.reader import MOST_ENTRIES, NAME, Schema
from yunhe.trading.demand.resource_fields import INFRA, MOST_ALTERNATIVES

_AMOUNT: Schema = {"type": ["string", "number"]}
_PORT: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": amounts.LAST_PORT},
        {"type": "string", "pattern": r"^\d{1,5}(-\d{1,5})?$"},
    ]
}
_INNER = r"^(?!/)(?!\.\.(/|$)).+$"

_PLAIN_RESOURCES: dict[str, Schema] = {
    "cpus": {
        **_AMOUNT,
        "description": "Cores: `2`, `0.5`, `500m`; `4+` is at least four. 1 when not said.",
        "examples": [2, "4+", "500m"],
    },
    "memory": {
        **_AMOUNT,
        "description": "Memory: a bare number is GiB; `16GB`, `512MB`, `32+`. 1 GiB when not said.",
        "examples": [16, "512MB", "32+"],
    },
    "disk_size": {
        **_AMOUNT,
        "description": "Free disk to reserve where it runs, written like memory.",
        "examples": [50],
    },
    "accelerators": {
        "type": ["string", "object"],
        "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
        "maxProperties": 1,
        "description": "One kind and a count: `A100`, `A100:2`, `{A100: 2}`; `A100:0.5` shares one.",
        "examples": ["A100:2", {"A100": 2}],
    },
    "pool": {
        "type": "string",
        "pattern": f"^({NAME.pattern})?$",
        "description": "Only this pool.",
    },
    "infra": {
        "type": "string",
        "pattern": f"^({INFRA.pattern})$",
        "description": "Only pools of this kind or with the label `cloud=…`, of this name or in this region, on nodes with the label `zone=…`: `aws/us-east-1/us-east-1a`, `*/cn-north`, `k8s/CONTEXT`, `KIND/NAME`; `*` is anywhere.",
        "examples": ["aws/us-east-1", "k8s"],
    },
    "where": {
        **PLACEMENT_FIELDS["where"].schema,
        "description": "Labels that the pool or the node must have, beside those of the task's `where`.",
    },
}


def _object(properties: dict[str, Schema], **more: object) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def _optional(schema: Schema) -> Schema:
    """Let the field be null, which is the same as leaving it out."""
    kinds = schema.get("type", [])
    names = [kinds] if isinstance(kinds, str) else list(kinds) if isinstance(kinds, list) else []
    choices = schema.get("enum")
    more: Schema = {"enum": [*choices, None]} if isinstance(choices, list) else {}
    return {**schema, "type": [*names, "null"], **more}


def _optionals(properties: dict[str, Schema]) -> dict[str, Schema]:
    return {name: _optional(schema) for name, schema in properties.items()}


_ONE_CHOICE: dict[str, Schema] = {**_PLAIN_RESOURCES, "use_spot": {"type": "boolean"}}
_MEMBERS: Schema = {"type": "integer", "minimum": 1, "maximum": MOST_MEMBERS}
_NAME: Schema = {"type": "string", "pattern": f"^{NAME.pattern}$"}


def _planned_only(meaning: str) -> str:
    return f"{meaning} Planned only: `yunhe plan` decides and explains it, `yunhe run` refuses it."


def _alternatives(description: str) -> Schema:
    return {
        "type": "array",
        "minItems": 1,
        "maxItems": MOST_ALTERNATIVES,
        "items": _object(
            _optionals(_ONE_CHOICE),
        ),
        "description": description,
    }


_RESOURCES: dict[str, Schema] = {
    **_PLAIN_RESOURCES,
    "any_of": _alternatives(
        "Alternatives, each over what is said beside them; the policy chooses among them."
    ),
    "ordered": _alternatives("Alternatives in order of preference; the first that can be had is taken."),
    "use_spot": {
        "type": "boolean",
        "description": "SkyPilot's word for the task's `interruptible`.",
        "examples": [True],
    },
}

_FIELDS: dict[str, Schema] = {
    "name": {
        "type": "string",
        "pattern": f"^({NAME.pattern})?$",
        "description": "At most 64 of a-z, 0-9, `-`, `_`, `.`. The file's name when not said.",
        "examples": ["train"],
    },
    "run": {
        "type": "string",
        "minLength": 1,
        "maxLength": parse.SCRIPT_LIMIT_BYTES,
        "description": "The script. Its exit code is the job's: 0 succeeded, anything else failed.",
        "examples": ["python train.py"],
    },
    "setup": {
        "type": "string",
        "maxLength": parse.SCRIPT_LIMIT_BYTES,
        "description": "A script that runs before `run`, in the same place; if it fails, `run` does not begin.",
        "examples": ["pip install -r requirements.txt"],
    },
    "python": _object(
        {
            "version": {"type": ["string", "null"], "pattern": f"^({VERSION.pattern})?$"},
            "requirements": {
                "type": ["string", "array", "null"],
                "items": {"type": "string"},
                "maxItems": MOST_ENTRIES,
            },
        },
        description='A Python environment that `setup` and `run` find first on the PATH: `version` (`"3.12"`, in quotes; any Python 3 when not said), `requirements` (a file of the job\'s directory, or a list of lines). Made once for its content on a node, by uv or pip, and shared read-only by later jobs of the project; only pools of hosts.',
        examples=[{"version": "3.12", "requirements": "requirements.txt"}],
    ),
    "image": {
        "type": "string",
        "pattern": f"^((docker:)?{parse.IMAGE.pattern})?$",
        "description": "A container image to run in, `NAME` or `docker:NAME`: only pools that run images are considered, and an image that is not there yet is fetched.",
        "examples": ["python:3.12", "docker:registry.example.org/team/app:1"],
    },
    "network": {
        "enum": list(NETWORKS),
        "description": "`none`: no network at all. `host`: the host's own, where the pool's owner allows it. Left out, a task on a host that can has a network of its own: the way out is open, the host's own services, link-local and metadata addresses are closed.",
        "examples": ["none"],
    },
    "egress": {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": MOST_ENTRIES,
        "description": "Blocks of IPv4 addresses, with `:PORT` or `:FIRST-LAST`, to which alone the task may connect; name servers are always among them.",
        "examples": [["192.0.2.0/24", "198.51.100.7:443"]],
    },
    "privileged": {
        "type": "boolean",
        "description": "Without the filter of system calls, with the host's devices and setuid programs, as the project's user; only on pools whose owner allows it.",
        "examples": [True],
    },
    "runtime": {
        "enum": list(RUNTIMES),
        "description": "`sandboxed`: in a sandbox with a kernel of its own (gVisor), on pools that have it; not with `image` or `privileged`. The sandbox's own memory, some 40 MiB, and its CPU time are the task's.",
        "examples": ["sandboxed"],
    },
    "resources": _object(
        _optionals(_RESOURCES),
        description="What it needs: an amount that is reserved and a limit that is kept.",
    ),
    "workdir": {
        "type": "string",
        "description": "A local directory to send along (relative to where `yunhe run` is called); the job starts in a copy of it.",
        "examples": ["."],
    },
    "file_mounts": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "maxProperties": MOST_ENTRIES,
        "propertyNames": {"pattern": _INNER},
        "description": "Where in the job's directory (relative, or `~/…`) → which local file or directory to send there.",
        "examples": [{"data/words.txt": "/usr/share/dict/words"}],
    },
    "outputs": {
        "type": "array",
        "items": {"type": "string", "pattern": _INNER},
        "maxItems": MOST_ENTRIES,
        "uniqueItems": True,
        "description": "Paths or patterns in the job's directory, kept when it ends; fetch them with `yunhe cp`.",
        "examples": [["results/*.json"]],
    },
    "envs": {
        "type": "object",
        "additionalProperties": {"type": ["string", "number"]},
        "maxProperties": MOST_ENTRIES,
        "propertyNames": {"pattern": f"^{parse.ENV_NAME.pattern}$"},
        "description": "Environment of setup and run. Numbers become text; put true, false, yes and no in quotes.",
        "examples": [{"EPOCHS": 3}],
    },
    "secrets": {
        "type": "array",
        "items": {"type": "string", "pattern": f"^({parse.ENV_NAME.pattern})?$"},
        "maxItems": MOST_ENTRIES,
        "uniqueItems": True,
        "description": "Names of the project's secrets to find in the environment; set them with `yunhe secret set`.",
        "examples": [["HF_TOKEN"]],
    },
    "retries": {
        "type": "integer",
        "minimum": 0,
        "maximum": parse.MOST_RETRIES,
        "description": "How often to try again after a failure, a lost pool or an unknown end.",
        "examples": [2],
    },
    "priority": {
        "type": "integer",
        "minimum": -parse.MOST_PRIORITY,
        "maximum": parse.MOST_PRIORITY,
        "description": "Higher goes first among the jobs that wait; 0 when not said.",
        "examples": [100],
    },
    "planned_only": {
        "type": "object",
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": parse.LONGEST_REASON},
        "maxProperties": MOST_ENTRIES,
        "description": "Written where a SkyPilot file is read: fields that can be planned and not run yet, each with why and what to do instead. `yunhe run` refuses a task that has one.",
    },
    "timeout": {
        **_AMOUNT,
        "description": "The longest one attempt may take: `90`, `90s`, `10m`, `2h`, `1d`. No limit when not said.",
        "examples": ["2h"],
    },
    "grace": {
        **_AMOUNT,
        "description": "How long its programs have to save their work when it is stopped, times out or loses its place, before they are forced: `0` to `1d`, written like `timeout`. They get SIGTERM first, and find the seconds in `YUNHE_GRACE_S`; what they write meanwhile is kept. 30 s when not said.",
        "examples": ["30s"],
    },
    "log_limit": {
        **_AMOUNT,
        "description": "How much room its output has where it runs until the platform has fetched it, compressed where the engine can: `1MB` to `16GB`, written like memory. Beyond it the oldest goes, and `yunhe logs` says where and how much. `64MB` when not said.",
        "examples": ["1GB"],
    },
    "separate_stderr": {
        "type": "boolean",
        "description": "Tell standard output and standard error apart, for `yunhe logs --stream`, where the engine can. The two are then in the order of their arrival, within some milliseconds.",
        "examples": [True],
    },
    "ports": {
        "anyOf": [_PORT, {"type": "array", "items": _PORT, "maxItems": parse.MOST_PORTS}],
        "description": "On which its programs listen: a port, a range such as `8080-8090`, or a list. `yunhe forward JOB` connects to them; nothing is opened to anybody else.",
        "examples": [8888, [8888, "6006-6007"]],
    },
    "near": {
        "type": "string",
        "minLength": 1,
        "description": "A place to be near: `cn-north`, `cn-north@39.9,116.4` or `@39.9,116.4`.",
        "examples": ["cn-north@39.9,116.4"],
    },
    "level": {
        "type": "string",
        "enum": [str(level) for level in Level],
        "description": "Only pools at this level: `end` (on the spot), `edge` (near by) or `central`. Any when not said.",
        "examples": ["edge"],
    },
    "tier": {
        "type": "string",
        "enum": [str(tier) for tier in Tier],
        "description": "Service class; it sets the price: `high` costs most, `low` least. `high` when not said.",
    },
    "policy": {
        "type": "string",
        "enum": [str(policy) for policy in Policy],
        "description": "What decides between pools that fit: `cheapest`, `nearest`, `fastest`, `greenest`, `lowest-latency` or `balanced` (when not said).",
    },
    "weights": {
        "type": "object",
        "properties": {term: {"type": "number", "minimum": 0, "maximum": 1e6} for term in SCORE_TERMS},
        "additionalProperties": False,
        "description": "Under `balanced`: how much each term counts; 1 when not said, and `risk` 0. The terms: [understand a decision](../how-to/understand-a-decision.md).",
        "examples": [{"cost_per_hour": 2, "distance_km": 1}],
    },
    **{name: field.schema for name, field in PLACEMENT_FIELDS.items()},
    "num_nodes": {
        **_MEMBERS,
        "description": _planned_only("Members on so many nodes of one pool, all or none."),
        "examples": [4],
    },
    "service": _object(
        {
            "replicas": _optional(_MEMBERS),
            **{name: {"type": "null"} for name in SERVICE_FIELDS},
        },
        description=_planned_only("Equal servers: `replicas`, each on a node of its own, in any pools."),
        examples=[{"replicas": 3}],
    ),
    "components": {
        "type": "array",
        "maxItems": MOST_COMPONENTS,
        "items": _object(
            {"name": _NAME, "resources": _optional(_object(_optionals(_ONE_CHOICE)))}, required=["name"]
        ),
        "description": _planned_only(
            "Parts of an app, each with a `name` and `resources` of its own over the task's; placed all or none."
        ),
        "examples": [[{"name": "web", "resources": {"cpus": 2}}, {"name": "db"}]],
    },
    "links": {
        "type": "array",
        "maxItems": MOST_LINKS,
        "items": _object(
            {
                "from": _NAME,
                "to": _NAME,
                "bandwidth": _optional(_AMOUNT),
                "latency": {"type": ["string", "null"]},
                "same_node": {"type": ["boolean", "null"]},
            },
            required=["from", "to"],
        ),
        "description": _planned_only(
            "What flows between components: `from`, `to`, `bandwidth` (Mbit/s, or `1Gbps`), the longest `latency` (`10ms`), `same_node: true`."
        ),
        "examples": [[{"from": "web", "to": "db", "bandwidth": "100Mbps", "latency": "10ms"}]],
    },
    "objective": _object(
        {name: {"type": "number", "minimum": 0, "maximum": 1e6} for name in OBJECTIVE_PARTS},
        description=_planned_only(
            "What the placement of the components is to be good at: balance of `nodes`, balance of `links` between sites, and `energy`, each with its weight; what is not named does not count. As little bandwidth between sites as possible when not said."
        ),
        examples=[{"nodes": 1, "links": 1, "energy": 0.5}],
    ),
}


def task_schema() -> Schema:
    """Return the JSON schema (draft 2020-12) of a task."""
    fields = {name: schema if name == "run" else _optional(schema) for name, schema in _FIELDS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Yunhe task",
        "description": "What to run, what it needs, what it may read and what it leaves.",
        **_object(fields, required=["run"]),
    }
