"""Preemption inside a quota: a pod takes the place of less important pods of its own quota.

There is none across quotas: lent capacity comes back by ``reclaim``. Whether the pod fits a node is
the caller's to know (``fits``). Source: Koordinator's ElasticQuota plugin, which follows
kube-scheduler's default preemption.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from koord.core.quota.model import DEFAULT, QuotaName, QuotaRules
from koord.core.units import Amounts


@dataclass(frozen=True, slots=True)
class Contender:
    """A pod that preempts, or may be preempted. ``started`` is seconds since the epoch."""

    key: str
    quota: QuotaName
    priority: int
    request: Amounts
    started: float = 0.0
    is_non_preemptible: bool = False
    is_terminating: bool = False


class Eligibility(StrEnum):
    """Whether a pod may preempt; the words are those of kube-scheduler."""

    ELIGIBLE = ""
    NEVER = "not eligible due to preemptionPolicy=Never."
    VICTIM_TERMINATING = "not eligible due to a terminating pod on the nominated node."


@dataclass(frozen=True, slots=True)
class QuotaRoom:
    """Usage and limit of the preemptor's quota."""

    used: Amounts
    limit: Amounts


def may_preempt(preemptor: Contender, victim: Contender, rules: QuotaRules) -> bool:
    return (
        not victim.is_non_preemptible
        and preemptor.quota == victim.quota
        and preemptor.priority > victim.priority
        and not (rules.spares_default_quota and victim.quota == DEFAULT)
    )


def find_eligibility(
    preemptor: Contender,
    nominated_pods: Iterable[Contender] | None,
    *,
    is_never: bool = False,
    is_unresolvable: bool = False,
) -> Eligibility:
    """Return whether a pod may preempt now.

    ``nominated_pods`` are those on the pod's nominated node, None without one; ``is_unresolvable``
    says that preemption cannot make that node fit.
    """
    if is_never:
        return Eligibility.NEVER
    if is_unresolvable:
        return Eligibility.ELIGIBLE
    for pod in nominated_pods or ():
        is_victim = pod.quota == preemptor.quota and pod.priority < preemptor.priority
        if pod.is_terminating and is_victim:
            return Eligibility.VICTIM_TERMINATING
    return Eligibility.ELIGIBLE


@dataclass(frozen=True, slots=True)
class NodeVictims:
    """The victims on one node, and how many of them violate a disruption budget."""

    victims: tuple[Contender, ...]
    violations: int


def choose_node_victims(
    preemptor: Contender,
    candidates: Sequence[Contender],
    room: QuotaRoom,
    *,
    fits: Callable[[Sequence[Contender]], bool],
    violating: frozenset[str] = frozenset(),
) -> NodeVictims | None:
    """Return the victims of a pod on one node, or None if preemption does not help.

    ``candidates`` may be preempted; ``fits`` tells whether the pod fits without these, and
    ``violating`` names those protected by a budget. All candidates are removed, then restored in
    order of importance, protected pods first, as long as node and quota have room.
    """
    gone = sorted(candidates, key=_most_important_first)
    if not gone or not fits(gone):
        return None
    used = {
        key: amount - sum(_requested(pod, key) for pod in gone) for key, amount in room.used.items()
    }
    victims = []
    for pod in sorted(gone, key=lambda pod: pod.key not in violating):
        without = [one for one in gone if one is not pod]
        with_pod = {key: used.get(key, 0) + _requested(pod, key) for key in {**used, **pod.request}}
        if fits(without) and _is_within(with_pod, preemptor.request, room.limit):
            gone, used = without, with_pod
        else:
            victims.append(pod)
    return NodeVictims(tuple(victims), sum(pod.key in violating for pod in victims))


def _is_within(used: Amounts, request: Amounts, limit: Amounts) -> bool:
    return all(used.get(key, 0) + request.get(key, 0) <= most for key, most in limit.items())


def _requested(pod: Contender, key: str) -> int:
    return pod.request.get(key, 0)


def _most_important_first(pod: Contender) -> tuple[int, float, str]:
    return (-pod.priority, pod.started, pod.key)
