"""Each claim, with clusters in which it is true and in which it is false."""

import pytest

from koord.api.keys import operators
from koord.core.gang.reasons import MissingMembers
from koord.kube.wire import WireCondition
from koord_sandbox.demo import scenes
from koord_sandbox.demo.observer import DemoCluster, SeenGang, SeenPod


def make_pod(number, *, gang="a", created=0.0, bound=None, ended=None, **others):
    node = "" if bound is None else f"node-{number}"
    return SeenPod(
        name=f"{gang}-{number}",
        gang=gang,
        gpus=8,
        created_at=created,
        **{"node": node, "bound_at": bound, "ended_at": ended} | others,
    )


def make_cluster(*pods, conditions=()):
    return DemoCluster(gangs=(SeenGang("a", 2, conditions=tuple(conditions)),), pods=pods)


MISSING = WireCondition(
    "QuorumReached", "False", "MissingMembers", "1 of 2 members of default/a present"
)
PLACED = WireCondition(operators.PLACED, "False", "MissingMembers")
SUCCEEDED = {"phase": "Succeeded", "bound": 1, "ended": 2}

CASES = [
    (
        scenes.waits("a", 2),
        [make_cluster(make_pod(0), make_pod(1))],
        [
            make_cluster(make_pod(0)),
            make_cluster(make_pod(0), make_pod(1), make_pod(2)),
            make_cluster(make_pod(0), make_pod(1, bound=1)),
            make_cluster(make_pod(0), make_pod(1, ended=1)),
            make_cluster(make_pod(0), make_pod(1, gang="b")),
        ],
    ),
    (
        scenes.group_says("a", "QuorumReached", MissingMembers.code, "1 of 2"),
        [make_cluster(conditions=[MISSING])],
        [
            DemoCluster(),
            make_cluster(),
            make_cluster(
                conditions=[WireCondition("QuorumReached", "True", "MissingMembers", "1 of 2")]
            ),
            make_cluster(conditions=[WireCondition("QuorumReached", "False", "Reached", "1 of 2")]),
            make_cluster(conditions=[WireCondition("Placed", "False", "MissingMembers", "1 of 2")]),
            make_cluster(
                conditions=[WireCondition("QuorumReached", "False", "MissingMembers", "2 of 3")]
            ),
        ],
    ),
    (
        scenes.members_say("a", 1, MissingMembers.code),
        [make_cluster(make_pod(0, conditions=(PLACED,)), make_pod(1, ended=1))],
        [
            make_cluster(),
            make_cluster(make_pod(0, conditions=(PLACED,)), make_pod(1)),
            make_cluster(make_pod(0, conditions=(MISSING,))),
        ],
    ),
    (
        scenes.is_bound_whole("a", 2),
        [make_cluster(make_pod(0, bound=1), make_pod(1, bound=2))],
        [
            make_cluster(make_pod(0, bound=1)),
            make_cluster(make_pod(0, bound=1), make_pod(1)),
            make_cluster(make_pod(0, bound=1), make_pod(0, bound=1)),
        ],
    ),
    (
        scenes.runs_whole("a", 1),
        [make_cluster(make_pod(0, bound=1, phase="Running"))],
        [
            make_cluster(make_pod(0, bound=1, phase="Pending")),
            make_cluster(make_pod(0, bound=1, phase="Running", ended=2)),
        ],
    ),
    (
        scenes.has_finished("a", 1),
        [make_cluster(make_pod(0, **SUCCEEDED))],
        [
            make_cluster(make_pod(0, **SUCCEEDED | {"phase": "Failed"})),
            make_cluster(make_pod(0, bound=1)),
        ],
    ),
    (
        scenes.none_was_early("a", 2),
        [make_cluster(make_pod(0, bound=2), make_pod(1, created=1, bound=3))],
        [
            make_cluster(make_pod(0, bound=0.5), make_pod(1, created=1, bound=3)),
            make_cluster(make_pod(0, bound=2)),
            make_cluster(make_pod(0), make_pod(1)),
        ],
    ),
    (
        scenes.none_was_early("a", 1, after="b"),
        [make_cluster(make_pod(0, bound=5), make_pod(1, gang="b", bound=1, ended=4))],
        [
            make_cluster(make_pod(0, bound=3), make_pod(1, gang="b", bound=1, ended=4)),
            make_cluster(make_pod(0, bound=3), make_pod(1, gang="b", bound=1)),
        ],
    ),
    (
        scenes.came_at_once("a"),
        [make_cluster(make_pod(0, bound=2), make_pod(1, created=1, bound=2))],
        [
            make_cluster(make_pod(0, bound=2), make_pod(1, created=1, bound=2.1)),
            make_cluster(make_pod(0, bound=2), make_pod(1, created=1)),
            make_cluster(),
        ],
    ),
    (
        scenes.came_at_once("a", after="b"),
        [make_cluster(make_pod(0, bound=5), make_pod(1, gang="b", bound=1, ended=4))],
        [make_cluster(make_pod(0, bound=5), make_pod(1, gang="b", bound=1, ended=3))],
    ),
]


@pytest.mark.parametrize(
    ("claim", "cluster"), [(claim, one) for claim, good, _ in CASES for one in good], ids=str
)
def test_a_claim_is_true(claim, cluster):
    assert claim.is_true(cluster), claim.text


@pytest.mark.parametrize(
    ("claim", "cluster"), [(claim, one) for claim, _, bad in CASES for one in bad], ids=str
)
def test_a_claim_is_not_true(claim, cluster):
    assert not claim.is_true(cluster), claim.text
