"""The options of a pool of this kind, read and checked."""

import re

import msgspec

from yunhe.infrastructure.contract.kind import Target
from yunhe.kernel.errors import FieldProblem, InvalidInputError

DEFAULT_IMAGE = "debian:stable-slim"
DEFAULT_PREFIX = "yunhe"
DEFAULT_SAMPLE_EVERY_S = 10.0
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


class AcceleratorRule(msgspec.Struct, frozen=True, kw_only=True):
    """How a kind of accelerator is asked for in the cluster."""

    kind: str
    resource: str
    """The extended resource, such as ``nvidia.com/gpu``."""
    label: str = ""
    value: str = ""
    """The node label that tells this kind from others with the same resource."""


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the operator chose for one pool."""

    context: str = ""
    kubeconfig: str = ""
    namespace: str = ""
    """One namespace for everything; empty: one for each project."""
    prefix: str = DEFAULT_PREFIX
    image: str = DEFAULT_IMAGE
    accelerators: tuple[AcceleratorRule, ...] = ()
    sample_every_s: float = DEFAULT_SAMPLE_EVERY_S

    @property
    def home(self) -> str:
        """The namespace of what belongs to no project."""
        return self.namespace or self.prefix

    def accelerator(self, kind: str) -> AcceleratorRule | None:
        """Return how a kind is asked for."""
        return next((rule for rule in self.accelerators if rule.kind == kind), None)

    def accelerators_of(self, labels: dict[str, str]) -> dict[str, str]:
        """Return which kind each extended resource is on a node with *labels*."""
        return {
            rule.resource: rule.kind
            for rule in self.accelerators
            if not rule.label or labels.get(rule.label) == rule.value
        }


def read_target(target: Target) -> ClusterSettings:
    """Return the settings in *target*, or say which option is wrong."""
    options = target.options
    for name in ("namespace", "namespace_prefix"):
        if name in options and not _NAMESPACE.fullmatch(options[name]):
            raise _invalid(name, "is not the name of a namespace", options[name])
    return ClusterSettings(
        context=target.address,
        kubeconfig=options.get("kubeconfig", ""),
        namespace=options.get("namespace", ""),
        prefix=options.get("namespace_prefix", DEFAULT_PREFIX),
        image=options.get("image", DEFAULT_IMAGE),
        accelerators=_read_accelerators(options.get("accelerators", "")),
        sample_every_s=_read_seconds(options.get("sample_every", f"{DEFAULT_SAMPLE_EVERY_S:g}")),
    )


def _read_accelerators(text: str) -> tuple[AcceleratorRule, ...]:
    """Read ``H200=nvidia.com/gpu@nvidia.com/gpu.product=NVIDIA-H200,…``; the label may be left out."""
    rules: list[AcceleratorRule] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        kind, equals, rest = part.partition("=")
        resource, at, selector = rest.partition("@")
        label, labelled, value = selector.partition("=")
        if not (kind and equals and "/" in resource) or (at and not (label and labelled and value)):
            raise _invalid("accelerators", "is not KIND=RESOURCE or KIND=RESOURCE@LABEL=VALUE", part)
        rules.append(AcceleratorRule(kind=kind, resource=resource, label=label, value=value))
    return tuple(rules)


def _read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.2 <= seconds <= 60:
        raise _invalid("sample_every", "is not a number of seconds from 0.2 to 60", text)
    return seconds


def _invalid(name: str, problem: str, value: str) -> InvalidInputError:
    return InvalidInputError(
        f"The option {name} {problem}.",
        remedy="docs/how-to/connect-kubernetes.md tells every option.",
        fields=(FieldProblem(f"options.{name}", problem, value),),
    )
