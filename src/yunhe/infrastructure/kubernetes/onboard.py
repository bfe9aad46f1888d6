"""The first contact with a cluster, one named check after the other; the first that fails is the last."""

import json
from collections.abc import AsyncIterator
from typing import NamedTuple

from yunhe.infrastructure.contract.kind import Check
from yunhe.infrastructure.contract.model import LaunchOrder, Step
from yunhe.infrastructure.kubernetes.api.answers import NotKubernetesError, decode
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.kubeconfig import Access, read_access
from yunhe.infrastructure.kubernetes.api.shapes import KubeNode
from yunhe.infrastructure.kubernetes.api.watch import PAGE, Page
from yunhe.infrastructure.kubernetes.facts import ServerVersion, find_out, may, read_version, who_am_i
from yunhe.infrastructure.kubernetes.objects.nodes import unmapped_devices
from yunhe.infrastructure.kubernetes.objects.pods import collection, pod_body
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.kernel.errors import ForbiddenError, NotFoundError, UnauthenticatedError, YunheError
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId
from yunhe.kernel.resources import Resources

OLDEST = (1, 29)
PROBE_NAMESPACE = "default"


class Need(NamedTuple):
    """A right we cannot do without."""

    resource: str
    verbs: tuple[str, ...]
    subresource: str = ""
    cluster_wide: bool = False

    @property
    def name(self) -> str:
        """The resource as roles write it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


NEEDS = (
    Need("configmaps", ("get", "list", "watch", "create", "patch", "delete")),
    Need("pods", ("get", "list", "watch", "create", "patch", "delete")),
    Need("pods", ("get",), "log"),
    Need("pods", ("create", "get"), "exec"),
    Need("pods", ("patch",), "resize"),
    Need("secrets", ("create", "delete")),
    Need("serviceaccounts", ("get", "create", "patch")),
    Need("namespaces", ("get", "create", "patch"), cluster_wide=True),
    Need("nodes", ("get", "list", "watch"), cluster_wide=True),
)
OPTIONAL = (
    Need("pods", ("create", "get"), "portforward"),
    Need("resourcequotas", ("get", "list")),
    Need("nodes", ("get",), "proxy", cluster_wide=True),
)


async def onboard(settings: ClusterSettings) -> AsyncIterator[Check]:
    """Try everything a cluster must give us, in order, and yield each result."""
    try:
        access = read_access(settings.context, settings.kubeconfig)
    except YunheError as error:
        problems = "; ".join(map(str, error.fields))
        yield Check(step="kubeconfig read", ok=False, detail=problems or error.problem, remedy=error.remedy)
        return
    yield Check(step="kubeconfig read", ok=True, detail=f"{access.name} at {access.server}")
    step = _CheckStep("credentials accepted")
    try:
        async with Api(access) as api:
            async for check in _checks(api, access, settings, step):
                yield check
                if not check.ok:
                    return
    except YunheError as error:
        yield Check(step=step.name, ok=False, detail=error.problem, remedy=error.remedy)


class _CheckStep:
    """The step that is being tried, to be named if it raises."""

    def __init__(self, name: str) -> None:
        self.name = name


async def _checks(
    api: Api, access: Access, settings: ClusterSettings, step: _CheckStep
) -> AsyncIterator[Check]:
    try:
        version = await read_version(api)
    except UnauthenticatedError as error:
        yield Check(step="reachable", ok=True)
        yield _not_known(access, error)
        return
    except NotKubernetesError as error:
        yield Check(step="reachable", ok=True)
        yield Check(
            step="is Kubernetes",
            ok=False,
            detail=f"{access.server} answers, but not as an API server does. {error.problem}",
            remedy=f"Correct the address of {access.name} in the kubeconfig, or sign in to the proxy before it: kubectl version should work with the same file and context.",
        )
        return
    except YunheError as error:
        yield Check(
            step="reachable",
            ok=False,
            detail=error.problem,
            remedy=f"Check the address {access.server}, the network, the proxy and the certificate authority.",
        )
        return
    yield Check(step="reachable", ok=True)
    if version.number < OLDEST:  # before anything that an old one does not serve
        yield _too_old(version)
        return
    try:
        user = await who_am_i(api)
    except (UnauthenticatedError, ForbiddenError) as error:
        yield _not_known(access, error)
        return
    yield Check(step="credentials accepted", ok=True, detail=user)
    yield Check(step="version", ok=True, detail=version.git_version)
    step.name = "permissions"
    yield await _check_permissions(api, settings, user)
    step.name = "pod admitted"
    yield await _check_admission(api, settings)
    step.name = "devices"
    yield await _check_devices(api, settings)
    step.name = "usage"
    facts = await find_out(api)
    yield Check(step="usage", ok=True, detail=f"from {facts.usage}")


def _not_known(access: Access, error: YunheError) -> Check:
    return Check(
        step="credentials accepted",
        ok=False,
        detail=f"{access.server} does not accept the credentials of {access.name}: {error.problem}.",
        remedy="Renew them in the kubeconfig: kubectl get nodes should work with the same file and context.",
    )


def _too_old(version: ServerVersion) -> Check:
    wanted = ".".join(map(str, OLDEST))
    return Check(
        step="version",
        ok=False,
        detail=f"Kubernetes {version.git_version} is too old: {wanted} or newer is needed.",
        remedy=f"Upgrade the cluster to {wanted} or newer.",
    )


async def _check_permissions(api: Api, settings: ClusterSettings, user: str) -> Check:
    """Ask for each right by itself, so that the one that is missing can be named."""
    missing: list[str] = []
    for need in NEEDS:
        if settings.namespace and need.resource == "namespaces":
            continue
        namespace = "" if need.cluster_wide else settings.namespace
        verbs = [
            verb
            for verb in need.verbs
            if not await may(api, verb, need.resource, subresource=need.subresource, namespace=namespace)
        ]
        missing += [f"{'/'.join(verbs)} {need.name}"] if verbs else []
    if not missing:
        return Check(step="permissions", ok=True)
    return Check(
        step="permissions",
        ok=False,
        detail=f"{user} may not {', '.join(missing)}.",
        remedy=f"Have an admin of the cluster give this to kubectl apply -f -:\n{roles(settings, user)}",
    )


async def _check_admission(api: Api, settings: ClusterSettings) -> Check:
    """Ask the cluster whether it would take a pod like ours; nothing is made."""
    order = LaunchOrder(
        allocation_id=AllocationId("probe_0"),
        token=0,
        project_id=ProjectId("probe"),
        node_id=NodeId(""),
        resources=Resources(cpu_millis=100, memory_mib=64),
        steps=(Step(name="probe", script="true\n"),),
        outputs=("*",),
    )
    namespace = settings.namespace or PROBE_NAMESPACE
    body = pod_body(order, (namespace, "yunhe-probe"), "00000000-0000-0000-0000-000000000000", settings)
    body["spec"]["serviceAccountName"] = "default"
    try:
        await api.create(collection("pods", namespace), body, dry_run=True)
    except NotFoundError:
        return Check(
            step="pod admitted",
            ok=False,
            detail=f"There is no namespace {namespace}.",
            remedy=f"Make it with kubectl create namespace {namespace}, or name another with --option namespace=….",
        )
    except YunheError as error:
        return Check(
            step="pod admitted",
            ok=False,
            detail=error.problem,
            remedy="An admission rule of the cluster refuses our pods: exempt our namespaces, or choose another image.",
        )
    return Check(step="pod admitted", ok=True, detail=settings.image)


async def _check_devices(api: Api, settings: ClusterSettings) -> Check:
    """Name the devices that the options leave out; the rest of the cluster serves without them."""
    body = await api.get(collection("nodes"), {"limit": str(PAGE)})
    nodes = decode(body, Page[KubeNode]).items or []
    kinds = ", ".join(rule.kind for rule in settings.accelerators)
    return Check(step="devices", ok=True, detail=unmapped_devices(nodes, settings) or kinds or "none")


def roles(settings: ClusterSettings, user: str) -> str:
    """Return the roles *user* needs, ready to be applied: where there is one namespace, most in it alone."""
    needs = (*NEEDS, *OPTIONAL)
    if not settings.namespace:
        return _role(needs, "", user)
    inside = tuple(need for need in needs if not need.cluster_wide)
    outside = tuple(need for need in needs if need.cluster_wide and need.resource != "namespaces")
    return _role(inside, settings.namespace, user) + "---\n" + _role(outside, "", user)


def _role(needs: tuple[Need, ...], namespace: str, user: str) -> str:
    kind = "Role" if namespace else "ClusterRole"
    where = f", namespace: {namespace}" if namespace else ""
    rules = "".join(
        f'  - {{apiGroups: [""], resources: ["{need.name}"], verbs: {_quoted(need.verbs)}}}\n'
        for need in needs
    )
    return (
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        f"kind: {kind}\n"
        f"metadata: {{name: yunhe{where}}}\n"
        f"rules:\n{rules}"
        "---\n"
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        f"kind: {kind}Binding\n"
        f"metadata: {{name: yunhe{where}}}\n"
        f"roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: yunhe}}\n"
        f"subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {json.dumps(user)}}}]\n"
    )


def _quoted(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"
