"""What is known of running pods whose plan was removed: annotations can be edited, nodes cannot.

The owner of a pod may remove the plan that the operators wrote, so that the pod looks like one that
another scheduler has placed, which nobody preempts. So a plan that was seen once counts until the
pod is gone. After a restart the spec is what is left: a pod that is pinned to its node by name was
released by the operators, unless a DaemonSet has made it.
"""

from collections.abc import Iterable
from typing import Final

from koord.core.model.pods import RecordedPlan
from koord.kube.wire import WireOwnerReference

_DAEMON_SET: Final = ("DaemonSet", "apps/v1", True)


class KnownPlans:
    """The last plan of each pod that counted."""

    def __init__(self) -> None:
        self._plans: dict[str, RecordedPlan] = {}

    def keep(self, uid: str, plan: RecordedPlan) -> RecordedPlan:
        self._plans[uid] = plan
        return plan

    def recall(self, uid: str, node: str) -> RecordedPlan | None:
        """Return the plan with which a pod came to its node."""
        plan = self._plans.get(uid)
        return plan if plan is not None and node and plan.node in {"", node} else None

    def forget(self, uid: str) -> None:
        self._plans.pop(uid, None)


def is_daemon_set(owner: WireOwnerReference) -> bool:
    """Whether an owner may be a DaemonSet.

    Pods whose owner does not exist are garbage-collected, if the cluster knows the kind.
    """
    return (owner.kind, owner.api_version, owner.controller) == _DAEMON_SET


def is_pinned_by_us(pinned_to: str, node: str, owners: Iterable[WireOwnerReference] | None) -> bool:
    """Whether a running pod was pinned to its node by name as a release does it."""
    return bool(node) and pinned_to == node and not any(map(is_daemon_set, owners or ()))
