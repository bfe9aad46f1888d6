"""Which resources an API server serves, asked once for all of them."""

from yunhe.infrastructure.kubernetes.api.answers import decode
from yunhe.infrastructure.kubernetes.api.client import JSON, Api
from yunhe.infrastructure.kubernetes.api.shapes import ApiObject, Meta
from yunhe.kernel.errors import YunheError

AGGREGATED = ",".join(
    [
        *(
            f"{JSON};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            for version in ("v2", "v2beta1")
        ),
        JSON,
    ]
)


class Subresource(ApiObject, frozen=True):
    """Part of a resource."""

    subresource: str = ""


class Resource(ApiObject, frozen=True):
    """A kind of object that is served."""

    resource: str = ""
    subresources: tuple[Subresource, ...] = ()


class Version(ApiObject, frozen=True):
    """A version of a group."""

    version: str = ""
    resources: tuple[Resource, ...] = ()


class ApiGroup(ApiObject, frozen=True):
    """A group of kinds."""

    metadata: Meta = Meta()
    versions: tuple[Version, ...] = ()


class GroupList(ApiObject, frozen=True):
    """The aggregated answer."""

    kind: str = ""
    items: tuple[ApiGroup, ...] = ()


class LegacyVersion(ApiObject, frozen=True):
    """A version of a group, as servers without aggregated discovery say it."""

    group_version: str = ""


class LegacyGroup(ApiObject, frozen=True):
    """Such a group."""

    versions: tuple[LegacyVersion, ...] = ()


class Legacy(ApiObject, frozen=True):
    """Their answer: versions of the core group, or groups."""

    versions: tuple[str, ...] = ()
    groups: tuple[LegacyGroup, ...] = ()


class LegacyResource(ApiObject, frozen=True):
    """A kind of object, by its name."""

    name: str = ""


class LegacyResources(ApiObject, frozen=True):
    """What one version serves."""

    resources: tuple[LegacyResource, ...] = ()


async def served(api: Api) -> frozenset[str]:
    """Return ``GROUP/VERSION/RESOURCE[/SUBRESOURCE]`` of all that is served; the core group is empty."""
    found: set[str] = set()
    for path in ("/api", "/apis"):
        body = await api.get(path, accept=AGGREGATED)
        answer = decode(body, GroupList)
        if answer.kind == "APIGroupDiscoveryList":
            found |= _flatten(answer)
        else:
            found |= await _served_one_by_one(api, body, path)
    return frozenset(found)


def _flatten(answer: GroupList) -> set[str]:
    found: set[str] = set()
    for group in answer.items:
        for version in group.versions:
            for resource in version.resources:
                name = f"{group.metadata.name}/{version.version}/{resource.resource}"
                found.add(name)
                found |= {f"{name}/{part.subresource}" for part in resource.subresources}
    return found


async def _served_one_by_one(api: Api, body: bytes, path: str) -> set[str]:
    """Ask each group for itself, as servers without aggregated discovery want it."""
    answer = decode(body, Legacy)
    versions = [f"/{version}" for version in answer.versions] if path == "/api" else []
    versions += [version.group_version for group in answer.groups for version in group.versions]
    found: set[str] = set()
    for version in versions:
        try:
            listed = decode(await api.get(f"{path}/{version.lstrip('/')}"), LegacyResources)
        except YunheError:
            continue  # an aggregated API whose server is down is as good as not served
        found |= {f"{version}/{resource.name}" for resource in listed.resources}
    return found
