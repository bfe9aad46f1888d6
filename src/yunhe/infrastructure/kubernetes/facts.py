"""What one cluster is and can do, found out once for each connection."""

import msgspec

from yunhe.infrastructure.contract.model import Account, Description, Isolation, Power, Quota
from yunhe.infrastructure.kubernetes.api.answers import decode, unreadable
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.discovery import served
from yunhe.infrastructure.kubernetes.api.shapes import ApiObject, Meta
from yunhe.infrastructure.kubernetes.objects.pods import Body, collection
from yunhe.infrastructure.kubernetes.objects.quantities import parse_quantity
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.infrastructure.kubernetes.usage.stats import UsageSource
from yunhe.kernel.errors import ForbiddenError

ALWAYS_MISSING = {
    Power.PIN: "Kubernetes has no verb to bind a running pod to cores; its CPU manager decides at the start.",
    Power.PAUSE: "Kubernetes cannot freeze a pod: no verb of its API reaches the freezer.",
    Power.GANG: "Several pods are not started together yet; the scheduler may start one without the others.",
    Power.SERVICES: "Services that restart by themselves are not made here yet.",
    Power.CHECKPOINT: "The kubelet can write a checkpoint, but nothing in the API restores one.",
    Power.VOLUMES: "Claims for volumes are not made here yet.",
}
NO_RESIZE = "This API server does not serve pods/resize, which is there from Kubernetes 1.33 on."


class ServerVersion(ApiObject, frozen=True):
    """What the API server says of itself."""

    git_version: str = ""
    major: str = ""
    minor: str = ""

    @property
    def number(self) -> tuple[int, int]:
        """The version as numbers; a provider's ``29+`` is 29."""
        major, minor = (
            "".join(letter for letter in part if letter.isdecimal()) for part in (self.major, self.minor)
        )
        return (int(major or 0), int(minor or 0))


class ClusterFacts(ApiObject, frozen=True):
    """What was found out."""

    version: ServerVersion
    resources: frozenset[str]
    usage: UsageSource
    sees_neighbours: bool
    """Whether we may see the pods of others, which hold part of each node."""

    @property
    def resizes(self) -> bool:
        """Whether a running pod's limits can be changed."""
        return "/v1/pods/resize" in self.resources


class QuotaStatus(ApiObject, frozen=True):
    """How much of a quota is used."""

    hard: dict[str, str] = msgspec.field(default_factory=dict)
    used: dict[str, str] = msgspec.field(default_factory=dict)


class ResourceQuota(ApiObject, frozen=True):
    """A limit that the cluster's owner has set on a namespace."""

    metadata: Meta = Meta()
    status: QuotaStatus = QuotaStatus()


class QuotaList(ApiObject, frozen=True):
    """All of them."""

    items: tuple[ResourceQuota, ...] = ()


class UserInfo(ApiObject, frozen=True):
    """Who we are."""

    username: str = ""


class SelfStatus(ApiObject, frozen=True):
    """The answer."""

    user_info: UserInfo = UserInfo()


class SelfReview(ApiObject, frozen=True):
    """The question of who we are, answered."""

    status: SelfStatus = SelfStatus()


class AccessStatus(ApiObject, frozen=True):
    """Whether something is allowed."""

    allowed: bool = False


class AccessReview(ApiObject, frozen=True):
    """The question of what we may do, answered."""

    status: AccessStatus = AccessStatus()


async def read_version(api: Api) -> ServerVersion:
    """Return which version the API server is."""
    body = await api.get("/version")
    version = decode(body, ServerVersion)
    if not version.git_version:
        raise unreadable(body, ValueError("it tells no version"))
    return version


async def find_out(api: Api) -> ClusterFacts:
    """Return what a cluster is and can do."""
    resources = await served(api)
    if await may(api, "get", "nodes", subresource="proxy"):
        usage = UsageSource.KUBELET
    elif "metrics.k8s.io/v1beta1/pods" in resources:
        usage = UsageSource.METRICS
    else:
        usage = UsageSource.NONE
    return ClusterFacts(
        version=await read_version(api),
        resources=resources,
        usage=usage,
        sees_neighbours=await may(api, "list", "pods") and await may(api, "watch", "pods"),
    )


async def may(api: Api, verb: str, resource: str, *, subresource: str = "", namespace: str = "") -> bool:
    """Return whether we may do something."""
    attributes: Body = {"verb": verb, "resource": resource, "group": "", "subresource": subresource}
    if namespace:
        attributes["namespace"] = namespace
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return decode(answer, AccessReview).status.allowed


def describe(facts: ClusterFacts, settings: ClusterSettings) -> Description:
    """Return what the engine is, with a reason for what it lacks."""
    missing: dict[str, str] = {**ALWAYS_MISSING}
    if not facts.resizes:
        missing[Power.RESIZE] = NO_RESIZE
    return Description(
        engine="kubernetes",
        version=facts.version.git_version or "unknown",
        powers=frozenset(set(Power) - {Power(name) for name in missing}),
        missing=missing,
        isolation=Isolation.ONE_PROJECT if settings.namespace else Isolation.PER_PROJECT,
        limits=f"the kubelet's cgroups; usage from {facts.usage}",
    )


async def who_am_i(api: Api) -> str:
    """Return who we are to the cluster."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await api.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    return decode(answer, SelfReview).status.user_info.username


async def read_account(api: Api, settings: ClusterSettings) -> Account:
    """Return who we are and the quotas of our namespaces."""
    identity = await who_am_i(api)
    try:
        body = await api.get(collection("resourcequotas", settings.namespace))
    except ForbiddenError:
        return Account(identity=identity)
    mine = (
        quota
        for quota in decode(body, QuotaList).items
        if settings.namespace or quota.metadata.namespace.startswith(f"{settings.prefix}-")
    )
    return Account(
        identity=identity,
        quotas=tuple(
            Quota(
                name=f"{quota.metadata.namespace}/{name}",
                limit=float(parse_quantity(hard)),
                used=float(parse_quantity(quota.status.used.get(name, "0"))),
            )
            for quota in mine
            for name, hard in sorted(quota.status.hard.items())
        ),
    )
