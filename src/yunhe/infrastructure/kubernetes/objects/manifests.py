"""An order as manifests: applied unchanged to the cluster, they run it without the platform."""

from yunhe.infrastructure.contract.model import LaunchOrder
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.pods import (
    Body,
    check_order,
    namespace_body,
    pod_body,
    record_body,
    service_account_body,
)
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.kernel.errors import FieldProblem, UnsupportedError

DEPLOYED_BY = "yunhe-plan"
"""Marks what the platform does not look after: its own pods are found by other labels."""


def manifests_of(order: LaunchOrder, settings: ClusterSettings) -> tuple[Body, ...]:
    """Return namespace, account, scripts and pod of an order, in the order in which they are to be applied."""
    check_order(order, settings)
    lacking = [name for name in ("secrets", "outputs") if getattr(order, name)]
    if lacking:
        raise UnsupportedError(
            f"{' and '.join(lacking)} cannot be written into a manifest: the platform keeps and fetches them.",
            remedy="Leave them out of the task, or run the plan here: yunhe run --plan PLAN.",
            fields=tuple(FieldProblem(name, "cannot be rendered") for name in lacking),
        )
    namespace = settings.namespace or names.namespace_of(settings.prefix, order.project_id)
    key = (namespace, names.object_name(order.allocation_id))
    made = () if settings.namespace else (namespace_body(namespace, order.project_id),)
    record, pod = record_body(order, namespace), pod_body(order, key, "", settings)
    for body in (record, pod):
        body["metadata"] = {
            "name": key[1],
            "namespace": namespace,
            "labels": {
                names.MANAGED_BY: DEPLOYED_BY,
                names.PROJECT: names.label_value(order.project_id),
            },
        }
    return (*made, service_account_body(namespace), record, pod)
