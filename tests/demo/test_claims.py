"""Each claim against clusters in which it is true, and others in which it must not be."""

import pytest

from koord.api.keys import operators
from koord.core.gang.reasons import MissingMembers
from koord.demo import claims
from koord.demo.observed import Cluster, Condition, SeenGang, SeenPod


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
    return Cluster(gangs=(SeenGang("a", 2, conditions=tuple(conditions)),), pods=pods)


MISSING = Condition("QuorumReached", False, "MissingMembers", "1 of 2 members of default/a present")
PLACED = Condition(operators.PLACED, False, "MissingMembers")
SUCCEEDED = {"phase": "Succeeded", "bound": 1, "ended": 2}

CASES = [
    (
        claims.waits("a", 2),
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
        claims.group_says("a", "QuorumReached", MissingMembers.code, "1 of 2"),
        [make_cluster(conditions=[MISSING])],
        [
            Cluster(),
            make_cluster(),
            make_cluster(conditions=[Condition("QuorumReached", True, "MissingMembers", "1 of 2")]),
            make_cluster(conditions=[Condition("QuorumReached", False, "Reached", "1 of 2")]),
            make_cluster(conditions=[Condition("Placed", False, "MissingMembers", "1 of 2")]),
            make_cluster(
                conditions=[Condition("QuorumReached", False, "MissingMembers", "2 of 3")]
            ),
        ],
    ),
    (
        claims.members_say("a", 1, MissingMembers.code),
        [make_cluster(make_pod(0, conditions=(PLACED,)), make_pod(1, ended=1))],
        [
            make_cluster(),
            make_cluster(make_pod(0, conditions=(PLACED,)), make_pod(1)),
            make_cluster(make_pod(0, conditions=(MISSING,))),
        ],
    ),
    (
        claims.is_bound_whole("a", 2),
        [make_cluster(make_pod(0, bound=1), make_pod(1, bound=2))],
        [
            make_cluster(make_pod(0, bound=1)),
            make_cluster(make_pod(0, bound=1), make_pod(1)),
            make_cluster(make_pod(0, bound=1), make_pod(0, bound=1)),
        ],
    ),
    (
        claims.runs_whole("a", 1),
        [make_cluster(make_pod(0, bound=1, phase="Running"))],
        [
            make_cluster(make_pod(0, bound=1, phase="Pending")),
            make_cluster(make_pod(0, bound=1, phase="Running", ended=2)),
        ],
    ),
    (
        claims.has_finished("a", 1),
        [make_cluster(make_pod(0, **SUCCEEDED))],
        [
            make_cluster(make_pod(0, **SUCCEEDED | {"phase": "Failed"})),
            make_cluster(make_pod(0, bound=1)),
        ],
    ),
    (
        claims.none_was_early("a", 2),
        [make_cluster(make_pod(0, bound=2), make_pod(1, created=1, bound=3))],
        [
            make_cluster(make_pod(0, bound=0.5), make_pod(1, created=1, bound=3)),
            make_cluster(make_pod(0, bound=2)),
            make_cluster(make_pod(0), make_pod(1)),
        ],
    ),
    (
        claims.none_was_early("a", 1, after="b"),
        [make_cluster(make_pod(0, bound=5), make_pod(1, gang="b", bound=1, ended=4))],
        [
            make_cluster(make_pod(0, bound=3), make_pod(1, gang="b", bound=1, ended=4)),
            make_cluster(make_pod(0, bound=3), make_pod(1, gang="b", bound=1)),
        ],
    ),
    (
        claims.came_at_once("a"),
        [make_cluster(make_pod(0, bound=2), make_pod(1, created=1, bound=2))],
        [
            make_cluster(make_pod(0, bound=2), make_pod(1, created=1, bound=2.1)),
            make_cluster(make_pod(0, bound=2), make_pod(1, created=1)),
            make_cluster(),
        ],
    ),
    (
        claims.came_at_once("a", after="b"),
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


def test_a_timing_counts_to_the_last_binding():
    cluster = make_cluster(
        make_pod(0, gang="b", bound=1, ended=4),
        make_pod(1, created=2, bound=5),
        make_pod(2, created=3, bound=6),
    )
    timing = claims.measure(cluster, "a", after="b")
    assert timing == claims.Timing(
        gang="a", pods=2, nodes=2, since_complete=3, since_room=2, last_bound_at=6
    )
