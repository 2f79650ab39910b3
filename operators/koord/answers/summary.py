"""The shortest form of why something waits: one reason, causes by their number of nodes, the owner.

Made of an explanation, for lists and pages that have one line for it. Decides nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from koord.answers.explain import ShapeOffers
from koord.core.model.pods import Pod
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason, class_of
from koord.core.model.text import cut

_MOST_EXAMPLES: Final = 3
_RANKS: Final = {reason_class: rank for rank, reason_class in enumerate(ReasonClass)}


@dataclass(frozen=True, slots=True)
class DominantReason:
    """The reason that is said if only one can be: the first by class."""

    code: str
    reason_class: ReasonClass | None
    sentence: str


@dataclass(frozen=True, slots=True)
class NodeCauseCount:
    """How many nodes take none of the pods for one cause, and some of them by name."""

    cause: str
    nodes: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The workload that made the pods."""

    kind: str
    namespace: str
    name: str
    uid: str


def find_dominant(reasons: Iterable[Reason]) -> DominantReason | None:
    """Return the first reason by the order of classes; None if there is none."""
    first = min(reasons, key=_rank, default=None)
    if first is None:
        return None
    sentence, stop, _ = first.text().partition(". ")
    return DominantReason(first.code, class_of(first.code), f"{sentence}{stop.strip()}")


def _rank(reason: Reason) -> int:
    reason_class = class_of(reason.code)
    return len(_RANKS) if reason_class is None else _RANKS[reason_class]


def count_causes(offers: Sequence[ShapeOffers]) -> tuple[NodeCauseCount, ...]:
    """Return why nodes take none of the pods of the first shape, most nodes first."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for offer in offers[0].nodes if offers else ():
        if offer.cause is not None and not offer.pods:
            nodes[str(offer.cause)].append(offer.node)
    return tuple(
        NodeCauseCount(cause, len(names), tuple(sorted(names)[:_MOST_EXAMPLES]))
        for cause, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))
    )


def find_owner(pods: Iterable[Pod]) -> OwnerRef | None:
    """Return the controller of pods, the first by name if they have several."""
    owners = {
        OwnerRef(cut(owner.kind), pod.namespace, cut(owner.name), cut(owner.uid))
        for pod in pods
        for owner in pod.owners
        if owner.is_controller
    }
    return min(owners, key=lambda owner: (owner.kind, owner.name, owner.uid), default=None)
