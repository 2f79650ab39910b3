"""Preemption and reclaim look at the queue: nobody goes for room that becomes free anyway."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import FakeCluster

from koord.core.engine.holds import Holds
from koord.core.eviction.model import Preemption
from koord.core.eviction.preemption import PreemptionSearch, nominate
from koord.core.eviction.reasons import WaitsForTermination
from koord.core.eviction.reclaim import plan_reclaim
from koord.core.model.patience import Patience
from koord.core.model.pods import Nominated
from koord.core.queue.plugin import QueueOptions, Queues
from koord.core.queue.run_time import QueueHints

if TYPE_CHECKING:
    from koord.core.engine.refused_units import Blocked

NOW = 1_000_000
HOUR = 3600
PATIENCE = Patience(stuck_after=60, grace_limit=300, ask_limit=0)


class Scene:
    """Nodes with 8 GPUs each, and a search for victims."""

    def __init__(self, nodes: int = 1, **settings: Any) -> None:
        values = {"protect_after": 0, **settings} if settings else {}
        self.cluster = FakeCluster(queue=QueueOptions(values))
        self.cluster.nodes(*(make_node(f"n{at}").gpu(8) for at in range(nodes)))
        self.now = float(NOW)
        state = self.cluster.state
        self.search = PreemptionSearch(
            state, self.cluster.queue, Holds(), lambda: self.now, patience=PATIENCE
        )

    def running(
        self, name: str, node: str, limit: int = 0, *, quota: str = "", **more: Any
    ) -> None:
        pod = make_pod(name).gpu(8).quota(quota).released(node, "p").running(node).build()
        says = (("queue", QueueHints(deadline=limit)),) if limit else ()
        self.cluster.pods(replace(pod, started=self.now, extensions=says, grace=30, **more))

    def want(self, name: str = "high", *, quota: str = "", gpus: int = 8) -> None:
        self.cluster.pods(make_pod(name).gpu(gpus).quota(quota).priority(10).created(self.now))

    def due(self, at: float = 0.0) -> list[str]:
        """Return for whom victims are searched then."""
        self.now = NOW + at
        self.cluster.state.advance(self.now)
        self.cluster.step(self.now)
        return [blocked.unit.pods[0].name for blocked in self.search.take_due(())]

    def blocked(self, name: str) -> Blocked:
        return next(
            blocked
            for blocked in self.cluster.queue.blocked.values()
            if blocked.unit.pods[0].name == name
        )

    def begin(self, name: str) -> None:
        """Have victims marked for a unit."""
        unit = self.blocked(name).unit
        preemption = self.search.find(unit, ())
        assert isinstance(preemption, Preemption)
        self.cluster.state.nominations.begin(nominate(preemption, self.now))
        for pod in preemption.pods:
            self.cluster.pods(replace(pod, is_terminating=True, marked=self.now))
        for assignment in preemption.placement.assignments:
            nominated = Nominated(assignment.node, preemption.placement.plan_id, unit.key, 1)
            self.cluster.pods(replace(assignment.pod, nominated=nominated))


@pytest.mark.parametrize(
    ("limit", "settings", "due"),
    [
        (500, {"prefer_wait": 600}, []),
        (560, {"prefer_wait": 600}, ["high"]),
        (500, {"prefer_wait": 0}, ["high"]),
        (500, {"prefer_wait": 600, "policy": "BestEffort"}, ["high"]),
        (500, {"prefer_wait": 600, "backfill_on": "Stated"}, ["high"]),
        (0, {"prefer_wait": 600}, ["high"]),
        (500, {}, ["high"]),
    ],
)
def test_nobody_goes_for_a_unit_that_starts_soon_by_limits(
    limit: int, settings: dict[str, Any], due: list[str]
) -> None:
    scene = Scene(**settings)
    scene.running("low", "n0", limit)
    scene.want()
    assert scene.due() == due


def test_victims_are_searched_once_a_limit_was_not_enforced() -> None:
    scene = Scene(prefer_wait=120)
    scene.running("low", "n0", 10)
    scene.want()
    assert [scene.due(at) for at in (1, 30, 71)] == [[], [], ["high"]]


@pytest.mark.parametrize(
    ("limit", "grace", "settings", "is_waited_for"),
    [
        (29, 30, {"prefer_wait": 0}, True),
        (31, 30, {"prefer_wait": 0}, False),
        (299, 1000, {"prefer_wait": 0}, True),
        (301, 10**9, {"prefer_wait": 0}, False),
        (29, 30, {}, False),
    ],
)
def test_a_pod_that_its_limit_ends_as_soon_as_an_eviction_would_is_no_victim(
    limit: int, grace: int, settings: dict[str, Any], *, is_waited_for: bool
) -> None:
    scene = Scene(**settings)
    scene.running("low", "n0", limit)
    scene.cluster.pods(replace(scene.cluster.pod("low"), grace=grace))
    scene.want()
    assert scene.due() == ["high"]
    unit = scene.blocked("high").unit
    assert (scene.search.find(unit, ()) is None) == is_waited_for
    assert isinstance(scene.search.why_not(unit.key), WaitsForTermination) == is_waited_for
    scene.now += limit + 1
    assert scene.search.find(unit, ()) is not None, "it should have gone"


@pytest.mark.parametrize(("settings", "waits"), [({"prefer_wait": 0}, True), ({}, False)])
def test_one_plan_at_a_time_is_carried_out_in_a_quota_tree(
    settings: dict[str, Any], *, waits: bool
) -> None:
    scene = Scene(2, **settings)
    scene.running("low-0", "n0")
    scene.running("low-1", "n1")
    scene.want("early")
    scene.want("late")
    assert scene.due() == ["early", "late"]
    late = scene.blocked("late")
    scene.begin("early")
    assert scene.search.is_worth_it(late) != waits
    assert (scene.due(1) == []) == waits


def test_a_victim_that_hangs_and_another_tree_keep_nobody_from_evicting() -> None:
    scene = Scene(3, prefer_wait=0)
    scene.cluster.quotas(
        make_quota("a", max={GPU: 99}),
        make_quota("b", max={GPU: 99}),
        replace(make_quota("c", max={GPU: 99}), tree_id="other"),
    )
    for at, quota in enumerate("abc"):
        scene.running(f"low-{at}", f"n{at}", quota=quota)
        scene.want(f"of-{quota}", quota=quota)
    assert scene.due() == ["of-a", "of-b", "of-c"]
    scene.begin("of-a")
    assert scene.due(31) == ["of-c"]
    assert scene.due(400) == ["of-a", "of-b", "of-c"]


def test_room_of_marked_victims_is_reserved_for_the_end_of_their_grace() -> None:
    scene = Scene(2, prefer_wait=0)
    scene.running("low-0", "n0")
    scene.running("low-1", "n1")
    scene.want()
    scene.due()
    queues = scene.cluster.state.plugin(Queues)
    scene.begin("high")
    (nomination,) = scene.cluster.state.nominations
    scene.due(1)
    with closing(scene.cluster.open_cycle(scene.cluster.queue.pending)) as cycle:
        (turn,) = queues.turns(cycle, {unit.key for unit in cycle.pending()})
    assert turn.reservation is not None
    assert turn.reservation.start == NOW + 60
    assert set(turn.reservation.nodes) == {nomination.assignments[0].node}


@pytest.mark.parametrize(("limit", "gone"), [(500, []), (HOUR, ["borrower"])])
def test_over_use_is_reclaimed_unless_the_unit_starts_soon(limit: int, gone: list[str]) -> None:
    """What is held of a guarantee may be lent: until it is needed."""
    scene = Scene(prefer_wait=600)
    scene.cluster.quotas(
        make_quota("a", min={GPU: 0}, max={GPU: 8}), make_quota("b", min={GPU: 8}, max={GPU: 8})
    )
    scene.running("borrower", "n0", limit, quota="a")
    scene.want("owner", quota="b")
    scene.due()
    state = scene.cluster.state
    blocked = scene.cluster.queue.blocked.values()
    reclaimed = plan_reclaim(state, state.open_ledger(), "a", blocked)
    assert [pod.name for reclaim in reclaimed for pod in reclaim.pods] == gone
