"""What an order becomes in the cluster: a record that claims it, a secret where it has any, and a pod."""

import math
import re
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from yunhe.infrastructure.contract.archives import check_paths
from yunhe.infrastructure.contract.model import LaunchOrder, Upload
from yunhe.infrastructure.kubernetes.api.shapes import Key
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.wrapper import KEEPER, Folders, command, unexpanded
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.kernel.errors import FieldProblem, InvalidInputError, TooLargeError, UnsupportedError
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

KEPT_AFTER_GRACE_S = 30
"""How much longer than its task a keeper outlives the polite signal: the files are fetched in it."""
SCRIPTS_LIMIT_BYTES = 900_000
"""A ConfigMap holds a MiB, and its names and annotations are part of it."""
TERMINATION_NOTE = "/dev/termination-log"
KEEPER_AMOUNTS = {"cpu": "50m", "memory": "32Mi"}
"""Enough for tar; requests equal limits, so that the pod keeps the class of service it would have without a keeper."""
KEPT_AFTER_TIMEOUT_S = 7 * 86_400
"""How much longer than its task a pod with a keeper may last: the deadline of a pod can never be put off, so that of one
whose files are still to be fetched lies this far behind the task's, which the wrapper keeps."""

Body = dict[str, Any]
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Brought(NamedTuple):
    """The files that have come for an order."""

    paths: tuple[str, ...]
    """Where each archive is unpacked."""
    volume: dict[str, Any]
    """Where they lie."""


class RecordState(StrEnum):
    """What a record says of its allocation."""

    PREPARING = "preparing"
    """Files come; no launch yet."""
    CLAIMED = "claimed"
    STOPPED = "stopped"
    RELEASED = "released"
    """Only the mark that it was."""


NOTHING_BROUGHT = Brought((), {})


def path_of(kind: str, key: Key, *parts: str) -> str:
    """Return the path of an object of the core API."""
    return "/".join((collection(kind, key[0]), key[1], *parts))


def collection(kind: str, namespace: str = "") -> str:
    """Return the path of all objects of a kind, in one namespace or in all."""
    return f"/api/v1/namespaces/{namespace}/{kind}" if namespace else f"/api/v1/{kind}"


def namespace_body(name: str, project_id: str) -> Body:
    """Return a project's namespace: no pod in it may be privileged."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {
                names.MANAGED_BY: "yunhe",
                "pod-security.kubernetes.io/enforce": "baseline",
                **({names.PROJECT: names.label_value(project_id)} if project_id else {}),
            },
        },
    }


def service_account_body(namespace: str) -> Body:
    """Return the account of our pods, which may do nothing."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": names.SERVICE_ACCOUNT,
            "namespace": namespace,
            "labels": {names.MANAGED_BY: "yunhe"},
        },
        "automountServiceAccountToken": False,
    }


def mark_body(allocation_id: AllocationId, namespace: str, token: int, state: RecordState) -> Body:
    """Return a record that holds nothing but its mark."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.object_name(allocation_id),
            "namespace": namespace,
            "labels": {
                names.MANAGED_BY: "yunhe",
                names.ALLOCATION: names.label_value(allocation_id),
                names.STATE: state,
            },
            "annotations": {names.ALLOCATION: allocation_id, names.TOKEN: str(token)},
        },
    }


def record_body(order: LaunchOrder, namespace: str) -> Body:
    """Return the record that claims an order; the scripts in it are what a stop takes away."""
    body = mark_body(order.allocation_id, namespace, order.token, RecordState.CLAIMED)
    body["metadata"]["labels"][names.PROJECT] = names.label_value(order.project_id)
    body["metadata"]["annotations"] |= {
        names.PROJECT: order.project_id,
        names.STEPS: msgspec.json.encode([step.name for step in order.steps]).decode(),
        **({names.SECRET: "true"} if order.secrets else {}),
    }
    body["data"] = {str(number): step.script for number, step in enumerate(order.steps, start=1)}
    return body


def preparing_body(upload: Upload, namespace: str) -> Body:
    """Return the record of an allocation whose files come before its launch; no file is there yet."""
    body = mark_body(upload.allocation_id, namespace, upload.token, RecordState.PREPARING)
    body["metadata"]["labels"][names.PROJECT] = names.label_value(upload.project_id)
    body["metadata"]["annotations"] |= {names.PROJECT: upload.project_id, names.FILES: "[]"}
    return body


def secret_body(order: LaunchOrder, record: Key, record_uid: str) -> Body:
    """Return the secret of an order."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _owned(order, record, record_uid),
        "type": "Opaque",
        "stringData": dict(order.secrets),
    }


def pod_body(
    order: LaunchOrder,
    record: Key,
    record_uid: str,
    settings: ClusterSettings,
    brought: Brought = NOTHING_BROUGHT,
) -> Body:
    """Return the pod of an order: it runs once, and stays until it is released, whoever else deletes it."""
    metadata = _owned(order, record, record_uid) | {"finalizers": [names.FINALIZER]}
    kinds = ",".join(wanted.kind for wanted in order.resources.accelerators)
    metadata["annotations"] = {names.ALLOCATION: order.allocation_id, names.ACCELERATORS: kinds}
    spec: Body = {
        "restartPolicy": "Never",
        "serviceAccountName": names.SERVICE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _grace_s(order) + (KEPT_AFTER_GRACE_S if order.outputs else 0),
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(order, record, settings, brought)],
        "volumes": [
            {"name": "steps", "configMap": {"name": record[1], "defaultMode": 0o755, "items": _items(order)}},
            {"name": "work", "emptyDir": _size_limit(order)},
        ],
        **_placement(order, settings),
    }
    if brought.paths:
        spec["volumes"].append({"name": "files", **brought.volume})
    if order.outputs:
        spec["containers"].append(_keeper(order, settings))
    if order.timeout_s is not None:
        spec["activeDeadlineSeconds"] = _timeout_s(order) + (KEPT_AFTER_TIMEOUT_S if order.outputs else 0)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def amounts(
    resources: Resources, settings: ClusterSettings, disk_limit_bytes: int | None = None
) -> dict[str, str]:
    """Return resources in the cluster's words."""
    disk_bytes = disk_limit_bytes or resources.disk_mib * 2**20
    chosen = {
        "cpu": f"{resources.cpu_millis}m" if resources.cpu_millis else "",
        "memory": f"{resources.memory_mib}Mi" if resources.memory_mib else "",
        "ephemeral-storage": str(disk_bytes) if disk_bytes else "",
    }
    for wanted in resources.accelerators:
        rule = settings.accelerator(wanted.kind)
        if rule is not None:
            chosen[rule.resource] = str(wanted.milli // 1000)
    return {name: text for name, text in chosen.items() if text}


def check_order(order: LaunchOrder, settings: ClusterSettings) -> None:
    """Refuse what the cluster could not honour, field by field."""
    check_paths(order.outputs, "outputs")
    problems = [
        FieldProblem(f"{field}.{name}", "is not a name of an environment variable", name)
        for field, group in (("envs", order.envs), ("secrets", order.secrets))
        for name in group
        if not _ENV_NAME.fullmatch(name)
    ]
    if not order.steps:
        problems.append(FieldProblem("steps", "is empty"))
    problems += [
        FieldProblem("resources.accelerators", "Kubernetes gives whole ones only", str(wanted.milli))
        for wanted in order.resources.accelerators
        if wanted.milli % 1000
    ]
    if problems:
        raise InvalidInputError("The order cannot be given to a cluster.", fields=tuple(problems))
    unknown = [a.kind for a in order.resources.accelerators if settings.accelerator(a.kind) is None]
    if unknown:
        raise UnsupportedError(
            f"This pool does not say which extended resource {', '.join(unknown)} is.",
            remedy=f"Add the option accelerators={unknown[0]}=RESOURCE to the pool, such as nvidia.com/gpu.",
            fields=(FieldProblem("resources.accelerators", "is not mapped", unknown[0]),),
        )
    if sum(len(step.script.encode()) for step in order.steps) > SCRIPTS_LIMIT_BYTES:
        raise TooLargeError(f"The scripts of a task may have {SCRIPTS_LIMIT_BYTES} bytes together here.")


def _owned(order: LaunchOrder, record: Key, record_uid: str) -> Body:
    return {
        "name": record[1],
        "namespace": record[0],
        "labels": {
            names.MANAGED_BY: "yunhe",
            names.ALLOCATION: names.label_value(order.allocation_id),
            names.PROJECT: names.label_value(order.project_id),
        },
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": record[1], "uid": record_uid}],
    }


def _container(order: LaunchOrder, record: Key, settings: ClusterSettings, brought: Brought) -> Body:
    asked = amounts(order.resources, settings, order.disk_limit_bytes)
    folders = Folders(names.STEPS_FOLDER, TERMINATION_NOTE, names.FILES_FOLDER)
    files = [{"name": "files", "mountPath": names.FILES_FOLDER, "readOnly": True}] if brought.paths else []
    return {
        "name": names.CONTAINER,
        "image": order.image or settings.image,
        "command": command(
            order.allocation_id,
            folders,
            [step.name for step in order.steps],
            unpack=brought.paths,
            timeout_s=_timeout_s(order) if order.outputs else 0,
            grace_s=_grace_s(order),
        ),
        "workingDir": names.WORK_FOLDER,
        "env": _environment(order, record),
        "resources": {"requests": asked, "limits": asked},
        "securityContext": {"allowPrivilegeEscalation": False},
        "terminationMessagePath": TERMINATION_NOTE,
        "volumeMounts": [
            {"name": "steps", "mountPath": names.STEPS_FOLDER, "readOnly": True},
            {"name": "work", "mountPath": names.WORK_FOLDER},
            *files,
        ],
    }


def _keeper(order: LaunchOrder, settings: ClusterSettings) -> Body:
    """Return the container that keeps the directory within reach after the task; it has none of its environment."""
    return {
        "name": names.KEEPER,
        "image": order.image or settings.image,
        "command": ["/bin/sh", "-c", KEEPER],
        "workingDir": names.WORK_FOLDER,
        "resources": {"requests": KEEPER_AMOUNTS, "limits": KEEPER_AMOUNTS},
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [{"name": "work", "mountPath": names.WORK_FOLDER, "readOnly": True}],
    }


def _timeout_s(order: LaunchOrder) -> int:
    return max(1, math.ceil(order.timeout_s)) if order.timeout_s is not None else 0


def _grace_s(order: LaunchOrder) -> int:
    """Return the grace in the whole seconds that a cluster counts in, at least the one that it may be told of."""
    return max(1, math.ceil(order.grace_s))


def _environment(order: LaunchOrder, record: Key) -> list[Body]:
    """Return the variables that every engine gives a task; where there is an image, its own stand unless they are ours."""
    plain = {"LANG": "C.UTF-8", "SHELL": "/bin/sh"} if not order.image else {}
    told = plain | {"HOME": names.WORK_FOLDER, "USER": "task", "LOGNAME": "task"} | order.envs
    ours = {
        "YUNHE_ALLOCATION_ID": order.allocation_id,
        "YUNHE_PROJECT_ID": order.project_id,
        "YUNHE_CPU_MILLIS": str(order.resources.cpu_millis),
        "YUNHE_MEMORY_MIB": str(order.resources.memory_mib),
        "YUNHE_GRACE_S": f"{order.grace_s:g}",
    }
    variables: dict[str, Body] = {name: {"value": unexpanded(value)} for name, value in told.items()}
    for name in order.secrets:
        variables[name] = {"valueFrom": {"secretKeyRef": {"name": record[1], "key": name}}}
    variables |= {name: {"value": unexpanded(value)} for name, value in ours.items()}
    variables["YUNHE_NODE_ID"] = {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return [{"name": name, **source} for name, source in variables.items()]


def _items(order: LaunchOrder) -> list[Body]:
    """Return the scripts one by one: a pod whose record has lost them cannot start."""
    return [{"key": str(number), "path": str(number)} for number in range(1, len(order.steps) + 1)]


def _size_limit(order: LaunchOrder) -> Body:
    disk_bytes = order.disk_limit_bytes or order.resources.disk_mib * 2**20
    return {"sizeLimit": str(disk_bytes)} if disk_bytes else {}


def _placement(order: LaunchOrder, settings: ClusterSettings) -> Body:
    """Return where it may run: on the node it names, on nodes with its accelerators, else where the scheduler likes."""
    rules = [settings.accelerator(wanted.kind) for wanted in order.resources.accelerators]
    selector = {rule.label: rule.value for rule in rules if rule is not None and rule.label}
    body: Body = {"nodeSelector": selector} if selector else {}
    if order.node_id:
        field = {"key": "metadata.name", "operator": "In", "values": [order.node_id]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        body["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return body
