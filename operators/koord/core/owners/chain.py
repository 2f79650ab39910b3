"""The chain of owners above a pod: which of them owns its gang, and why that cannot be said.

Only controllers are followed, and each object must be the one that the reference means, in the
namespace of the pod: references are written by tenants, and a forged one leads nowhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.core.model.gangs import GangSource, GangSpec
from koord.core.model.pods import OwnerReference, Pod
from koord.core.owners.model import (
    DRIVER_RULE,
    EXECUTOR,
    MAX_STEPS,
    POD_KEY,
    POD_RULE,
    DriverHint,
    GroupSize,
    KindKey,
    KindRule,
    OwnerClaim,
    OwnerObject,
    OwnerPart,
    OwnerRole,
    OwnerRoles,
    controller_of,
    kind_of,
)
from koord.core.owners.reasons import InvalidOwner

_NO_SETTINGS: Final = GangSpec("", 1, 1, source=GangSource.OWNER)
LookUp: TypeAlias = Callable[[str], OwnerObject | None]
"""Returns an owner by uid, if it was read."""


@dataclass(frozen=True, slots=True)
class OwnerChain:
    """The owners above a pod, nearest first."""

    owners: tuple[OwnerObject, ...] = ()
    missing: OwnerReference | None = None
    """What should come next, is of a kind with a rule, and was not read."""
    unknown: OwnerReference | None = None
    """What comes next, and is of a kind without a rule."""

    @property
    def claimant(self) -> OwnerObject | None:
        """The highest owner that claims the gang."""
        return next((owner for owner in reversed(self.owners) if owner.claim is not None), None)

    @property
    def top_pod(self) -> OwnerObject | None:
        """The highest pod among the owners."""
        return next((owner for owner in reversed(self.owners) if owner.rule.key == POD_KEY), None)

    @property
    def is_opted_out(self) -> bool:
        return any(owner.is_opted_out for owner in self.owners)


def read_group_size(pod: Pod) -> int:
    """Return how many pods are in the group of a pod, as it says; 0: it says nothing."""
    return next((hint.pods for _, hint in pod.extensions if isinstance(hint, GroupSize)), 0)


def as_owner(pod: Pod) -> OwnerObject:
    """Return a pod as what owns other pods: a driver of Spark may claim their gang."""
    above = controller_of(pod.owners)
    hint = next((hint for _, hint in pod.extensions if isinstance(hint, DriverHint)), None)
    if hint is None or pod.gang is not None:
        size = read_group_size(pod)
        return OwnerObject(pod.uid, pod.namespace, pod.name, POD_RULE, above, group_size=size)
    return OwnerObject(
        pod.uid, pod.namespace, pod.name, DRIVER_RULE, above, _make_claim(pod.key, hint)
    )


def _make_claim(driver: str, hint: DriverHint) -> OwnerClaim:
    executors = OwnerRole(EXECUTOR, hint.least, hint.least)
    problem = None
    if hint.problem:
        problem = InvalidOwner(f"pod/{driver}", hint.field, hint.problem, hint.value)
    return OwnerClaim(OwnerRoles((executors,)), _NO_SETTINGS, problem=problem)


def walk(
    namespace: str,
    reference: OwnerReference | None,
    rules: Mapping[KindKey, KindRule],
    look_up: LookUp,
) -> OwnerChain:
    """Follow controllers upwards; ``reference`` is what controls a pod."""
    owners: list[OwnerObject] = []
    while reference is not None and len(owners) < MAX_STEPS:
        key = kind_of(reference)
        rule = POD_RULE if key == POD_KEY else rules.get(key)
        if rule is None:
            return OwnerChain(tuple(owners), unknown=reference)
        if rule.part is OwnerPart.ENDS:
            break
        owner = look_up(reference.uid)
        if owner is None or not owner.is_meant_by(reference, namespace):
            return OwnerChain(tuple(owners), missing=reference)
        owners.append(owner)
        reference = owner.controller
    return OwnerChain(tuple(owners))
