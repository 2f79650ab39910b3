"""What keeps members of a native PodGroup of Kubernetes from being released, as a rule of its own.

kube-scheduler handles such a group as one: it counts members behind gates as there, and refuses all
if they differ. A member that is released into that cannot be held again. So nothing is released
that it would not start. Knows one gang at a time, and nothing of plans.
"""

from typing import Final

from koord.core.gang.cache import Gang, GangStates
from koord.core.gang.native_reasons import (
    GroupClaims,
    MixedGates,
    MixedSchedulers,
    NativeProblem,
    NativeQuorumMissing,
    PriorityDiffers,
)
from koord.core.model.gangs import GangKey
from koord.core.model.native_terms import NativeTerms
from koord.core.model.pods import Handling, Pod

_RESOURCE_CLAIMS: Final = "spec.resourceClaims"


def find_native_problem(gangs: GangStates) -> NativeProblem | None:
    """Return why no member of some gangs may be released; None: they may, or are not native."""
    problems = (
        _find_problem(key, gang, gang.spec.native)
        for key, gang in gangs.items()
        if gang.spec is not None and gang.spec.native is not None
    )
    return next((problem for problem in problems if problem is not None), None)


def find_missing_quorum(gang: Gang, pod: Pod) -> NativeQuorumMissing | None:
    """Return why kube-scheduler does not bind a released member; None if its group is there.

    It counts members behind gates as there, and none that have ended.
    """
    terms = None if gang.spec is None else gang.spec.native
    is_left = pod.is_waiting and pod.recorded is not None and pod.handling is Handling.NOT_OURS
    if gang.spec is None or terms is None or not (terms.is_gang and is_left):
        return None
    present, least = gang.tally.alive, gang.spec.min_member
    if present >= least:
        return None
    return NativeQuorumMissing(gang.spec.key, pod.key, present, least)


def _find_problem(key: GangKey, gang: Gang, terms: NativeTerms) -> NativeProblem | None:
    waiting = [pod for pod in gang.members.values() if pod.is_alive and not pod.node]
    ours = [pod for pod in waiting if pod.handling is not Handling.NOT_OURS]
    if terms.priority is not None:
        differing = [pod for pod in ours if pod.priority != terms.priority]
        if differing:
            pod = _first(differing)
            return PriorityDiffers(key, terms.priority, pod.key, pod.priority)
    claiming = [pod for pod in ours if _RESOURCE_CLAIMS in pod.shape.needs_kube_scheduler]
    if terms.claims and claiming:
        return GroupClaims(key, terms.claims, _first(claiming).key)
    return _find_difference(key, waiting, ours) if terms.is_gang else None


def _find_difference(
    key: GangKey, waiting: list[Pod], ours: list[Pod]
) -> MixedGates | MixedSchedulers | None:
    """Return how members differ of which kube-scheduler wants all to be alike."""
    ungated = [pod for pod in waiting if pod.handling is Handling.NOT_OURS and pod.recorded is None]
    if ungated and ours:
        return MixedGates(key, len(ours), len(ungated), _first(ungated).key)
    theirs = [pod for pod in ours if pod.handling is Handling.RELEASE_PINNED]
    mine = [pod for pod in ours if pod.handling in {Handling.RELEASE_AND_BIND, Handling.BIND}]
    if theirs and mine:
        return MixedSchedulers(key, len(mine), len(theirs), _first(theirs).key)
    return None


def _first(pods: list[Pod]) -> Pod:
    return min(pods, key=lambda pod: pod.key)
