"""``max-priority`` of a quota: pods with a higher priority wait until they or the quota change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_unit

from koord.core.quota.reasons import PriorityNotAllowed

AMOUNTS = {"cpu": 64_000}
ORG = make_quota("org", min=AMOUNTS, max=AMOUNTS, is_parent=True, max_priority=100)
TEAM = make_quota("team", parent="org", min=AMOUNTS, max=AMOUNTS)


def make_cluster(team: int | None = None) -> FakeCluster:
    cluster = FakeCluster().nodes(make_node("n").cpu(16_000))
    return cluster.quotas(ORG, replace(TEAM, max_priority=team))


def make_job(*priorities: int) -> list:
    return [
        make_pod(f"p{at}").requests(cpu=1_000).quota("team").priority(priority).build()
        for at, priority in enumerate(priorities)
    ]


@pytest.mark.parametrize(
    ("team", "priorities", "refused"),
    [
        (None, [100], None),
        (None, [101], PriorityNotAllowed("org", 101, 100)),
        (50, [51], PriorityNotAllowed("team", 51, 50)),
        (200, [101], PriorityNotAllowed("org", 101, 100)),
        (50, [0, 51], PriorityNotAllowed("team", 51, 50)),
        (-1, [0], PriorityNotAllowed("team", 0, -1)),
    ],
    ids=["equal", "of the parent", "own", "lowest of both", "one member", "negative"],
)
def test_the_lowest_limit_on_the_way_up_counts(
    team: int | None, priorities: list[int], refused: PriorityNotAllowed | None
) -> None:
    pods = make_job(*priorities)
    outcome = make_cluster(team).pods(*pods).plan(make_unit("job", pods))
    assert [refusal.reason for refusal in outcome.refusals] == ([refused] if refused else [])


def test_a_running_pod_stays_charged_and_a_waiting_one_starts_when_the_limit_is_raised() -> None:
    running = make_pod("r").requests(cpu=3_000).quota("team").priority(500).running("n")
    (pod,) = make_job(500)
    cluster = make_cluster(50).pods(running, pod)
    assert cluster.step() == []
    assert cluster.reason() == PriorityNotAllowed("team", 500, 50)
    assert cluster.state.quotas.usage.of("team").used == {"cpu": 3_000, "pods": 1}
    assert cluster.quotas(replace(TEAM, max_priority=500)).step() == []
    assert cluster.reason() == PriorityNotAllowed("org", 500, 100)
    assert cluster.quotas(replace(ORG, max_priority=None)).step() == ["p0"]


def test_the_text_says_whose_limit_it_is() -> None:
    assert PriorityNotAllowed("org", 101, 100).text() == (
        "quota org allows pods a priority of at most 100, and these have 101; choose a "
        "PriorityClass with a lower value, or ask the administrators to raise the annotation "
        "operators.koordinator.sh/max-priority of the quota"
    )
