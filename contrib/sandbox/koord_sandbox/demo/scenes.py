"""The scenes: what is typed, and the claims that must come true on the API server after it.

Two jobs on eight nodes of eight GPUs: *resnet* takes half of the cluster, *llama* all of it.
Claims about order ("no pod was bound before ...") compare times that were recorded as the changes
arrived, so that nothing short-lived is missed.
"""

import shlex
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from koord.api.keys import gang as keys
from koord.api.keys import operators
from koord.core.engine.reasons import InsufficientNodes
from koord.core.gang.reasons import AllBound, MissingMembers
from koord.kube.wire import WireCondition
from koord_sandbox.demo.observer import GPU, DemoCluster

if TYPE_CHECKING:
    from koord_sandbox.demo.show import Stage

NODES: Final = 8
SHAPE: Final = "a100x8"
SMALL, SMALL_PODS = "resnet", 4
BIG, BIG_PODS = "llama", 8
AT_ONCE_SECONDS: Final = 1.0
"""A gang has all its nodes within this time after there is room for it."""


class Expectation(NamedTuple):
    """A sentence, and whether it is true of what has been seen so far."""

    text: str
    is_true: Callable[[DemoCluster], bool]


def play(stage: "Stage", examples: Path) -> None:
    """Play all scenes, with the manifests of a folder."""
    small, big = (shlex.quote(str(examples / f"{name}.yaml")) for name in (SMALL, BIG))
    present = SMALL_PODS - 1
    stage.narrate(
        f"A job of {SMALL_PODS} pods with 8 GPUs each is created with one pod missing. It waits."
    )
    edit = f"s/parallelism: {SMALL_PODS}/parallelism: {present}/"
    stage.type(f"sed '{edit}' {small} | kubectl apply -f -")
    counts = f"{present} of {SMALL_PODS}"
    _expect_waiting(stage, SMALL, present, "QuorumReached", MissingMembers.code, (counts,))

    stage.narrate("The fourth pod is created. All four get their nodes at once.")
    # Not `apply`: it downloads the whole schema, which takes the API server a second or two.
    stage.type(f'kubectl patch job {SMALL} -p \'{{"spec":{{"parallelism":{SMALL_PODS}}}}}\'')
    _expect_start(stage, SMALL, SMALL_PODS)

    stage.narrate(
        f"A job of {BIG_PODS} such pods is created. Half of it would fit, and would block all free "
        "GPUs without doing any work. So none of it starts."
    )
    stage.type(f"kubectl apply -f {big}")
    missing = f"{BIG_PODS + SMALL_PODS - NODES} more"
    _expect_waiting(stage, BIG, BIG_PODS, "Placed", InsufficientNodes.code, (GPU, missing))
    stage.type(f"koord explain podgroup/{BIG} | grep -A1 'What would help'")

    stage.narrate(
        "The first job ends (fake nodes run nothing: an annotation tells them that the work is "
        "done). The big one gets the whole cluster."
    )
    annotation = f"{operators.PREFIX}demo-run-seconds=0"
    stage.type(f"kubectl annotate pods -l {keys.POD_GROUP}={SMALL} {annotation}")
    stage.expect(has_finished(SMALL, SMALL_PODS))
    _expect_start(stage, BIG, BIG_PODS, after=SMALL)


def _expect_waiting(  # noqa: PLR0913, PLR0917 - one value for each part of the claims
    stage: "Stage", gang: str, pods: int, kind: str, reason: str, words: tuple[str, ...]
) -> None:
    stage.expect(
        waits(gang, pods), group_says(gang, kind, reason, *words), members_say(gang, pods, reason)
    )
    stage.quote(gang)


def _expect_start(stage: "Stage", gang: str, pods: int, after: str | None = None) -> None:
    stage.expect(
        is_bound_whole(gang, pods),
        group_says(gang, "Bound", AllBound.code, status=True),
        runs_whole(gang, pods),
        none_was_early(gang, pods, after),
        came_at_once(gang, after),
    )


def waits(gang: str, pods: int) -> Expectation:
    return Expectation(
        f"{pods} pods of {gang} exist, none of them has a node",
        lambda seen: [pod.is_bound for pod in seen.present(gang)] == [False] * pods,
    )


def group_says(gang: str, kind: str, reason: str, *words: str, status: bool = False) -> Expectation:
    """Claim that the PodGroup has a condition with these words in its message."""

    def is_true(seen: DemoCluster) -> bool:
        group = seen.gang(gang)
        condition = None if group is None else find(group.conditions, kind, reason, status=status)
        return condition is not None and all(word in condition.message for word in words)

    named = f", and names {' and '.join(words)}" if words else ""
    return Expectation(f"PodGroup {gang} says {kind}={status}, reason {reason}{named}", is_true)


def members_say(gang: str, pods: int, reason: str) -> Expectation:
    """Claim that there are that many members, each with our condition and the reason."""

    def is_true(seen: DemoCluster) -> bool:
        members = seen.present(gang)
        return len(members) == pods and all(
            find(pod.conditions, operators.PLACED, reason, status=False) for pod in members
        )

    return Expectation(f"each of the {pods} pods of {gang} says {reason}", is_true)


def is_bound_whole(gang: str, pods: int) -> Expectation:
    def is_true(seen: DemoCluster) -> bool:
        nodes = [pod.node for pod in seen.members(gang) if pod.bound_at is not None]
        return len(nodes) == pods == len(set(nodes))

    return Expectation(f"all {pods} pods of {gang} are bound, to {pods} nodes", is_true)


def runs_whole(gang: str, pods: int) -> Expectation:
    return Expectation(
        f"all {pods} pods of {gang} run",
        lambda seen: [pod.phase for pod in seen.present(gang)] == ["Running"] * pods,
    )


def has_finished(gang: str, pods: int) -> Expectation:
    return Expectation(
        f"all {pods} pods of {gang} have succeeded",
        lambda seen: [pod.phase for pod in seen.members(gang)] == ["Succeeded"] * pods,
    )


def none_was_early(gang: str, pods: int, after: str | None = None) -> Expectation:
    """Claim that no pod was bound before the gang was complete and ``after`` had ended."""

    def is_true(seen: DemoCluster) -> bool:
        bound = [pod.bound_at for pod in seen.members(gang)]
        room_at = _room_at(seen, gang, after)
        return len(bound) == pods and all(at is not None and at >= room_at for at in bound)

    what = f"all {pods} existed" if after is None else f"{after} had ended"
    return Expectation(f"no pod of {gang} was bound before {what}", is_true)


def came_at_once(gang: str, after: str | None = None) -> Expectation:
    """Claim that the last member was bound right after there was room."""

    def is_true(seen: DemoCluster) -> bool:
        bound = [inf if pod.bound_at is None else pod.bound_at for pod in seen.members(gang)]
        return max(bound, default=inf) <= _room_at(seen, gang, after) + AT_ONCE_SECONDS

    since = "its last pod came" if after is None else f"{after} had ended"
    return Expectation(f"{gang} was bound within a second after {since}", is_true)


def find(
    conditions: Iterable[WireCondition], kind: str, reason: str, *, status: bool
) -> WireCondition | None:
    wanted = (kind, reason, str(status))
    matching = (
        condition
        for condition in conditions
        if (condition.type, condition.reason, condition.status) == wanted
    )
    return next(matching, None)


def _room_at(seen: DemoCluster, gang: str, after: str | None) -> float:
    """Return when the gang was complete and all pods in its way had ended; infinity if not yet."""
    created = [pod.created_at for pod in seen.members(gang)]
    blockers = [] if after is None else seen.members(after)
    ended = [inf if pod.ended_at is None else pod.ended_at for pod in blockers]
    return max([*created, *ended], default=0.0)
