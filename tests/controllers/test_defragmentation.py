"""Rounds of DefragmentationPolicies: what is searched for, jobs in order, budgets and windows."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group, select_labels
from tests.cluster import make_cluster
from tests.defrag.test_search import runner
from tests.support.authors import FakeAuthor

from koord.controllers.defragmentation import DefragmentationPolicies
from koord.core.defrag.policy import DefragPolicies, DefragPolicy, DefragSettings, MoveWindow
from koord.core.engine.policies import ObservedPolicy
from koord.core.model.budgets import Budget
from koord.kube.errors import Forbidden
from koord.kube.migration_jobs import MoveOrder, OrderedMoves, make_job
from koord.kube.translate.defrag import translate_settings

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

    from koord.core.engine.state import ClusterState

NOW = 1_000_000.0


def make_policy(**spec: Any) -> DefragPolicy:
    settings = translate_settings(json.dumps(spec).encode())
    return ObservedPolicy("p", "uid-p", 1, 0.0, settings, spec)


class Orders:
    """Stands in for the API server: keeps the jobs that were ordered."""

    def __init__(self) -> None:
        self.jobs: dict[str, MoveOrder] = {}
        self.over: set[str] = set()
        self.fails = False

    async def list(self, creator: str) -> OrderedMoves:
        running = sum(job.creator == creator for job in self.jobs.values()) - len(self.over)
        return OrderedMoves(frozenset(job.uid for job in self.jobs.values()), running)

    async def create(self, order: MoveOrder) -> bool:
        if self.fails:
            raise Forbidden(403, "no", "Forbidden")
        is_new = order.job_name not in self.jobs
        self.jobs.setdefault(order.job_name, order)
        return is_new


class Rounds:
    """A policy in a cluster, the time, and what was written."""

    def __init__(self, cluster: FakeCluster, **spec: Any) -> None:
        self.cluster, self.orders, self.now = cluster, Orders(), NOW
        self.budgets: tuple[Budget, ...] = ()
        self.status: dict[str, Any] = {}
        self.ready: tuple[bool, str, str] = (False, "", "")
        cluster.state.plugin(DefragPolicies).upsert(make_policy(**spec))
        self.start()

    def start(self) -> None:
        """Start the operator, as after a crash."""
        self.controller = DefragmentationPolicies(
            self.cluster.state,
            FakeAuthor(self._write),  # type: ignore[arg-type]
            lambda _: self.status,
            self,  # type: ignore[arg-type]
            self.orders,  # type: ignore[arg-type]
            lambda: self.now,
            lambda: self.make_state,
        )

    def make_state(self) -> ClusterState:
        """Make what a round plans with; not in the thread of the event loop."""
        assert threading.current_thread() is not threading.main_thread()
        return self.cluster.state

    async def list_budgets(self) -> tuple[Budget, ...]:
        return self.budgets

    def _write(self, _: Any, fields: Any, conditions: Any) -> None:
        self.status = json.loads(json.dumps(fields))
        (ready,) = conditions
        self.ready = (ready.status, ready.reason, ready.message)

    async def update(self, after: float = 0.0) -> float | None:
        self.now += after
        return await self.controller.update("p")

    @property
    def moved(self) -> list[tuple[str, str]]:
        return [(job.name, job.target) for job in self.orders.jobs.values()]


def fragmented() -> FakeCluster:
    """Two moves are needed for a pod of 8: first ``b`` to n2, then ``a`` to where it was."""
    cluster = make_cluster().nodes(make_node("n0").gpu(8), make_node("n1").gpu(6))
    cluster.nodes(make_node("n2").gpu(4))
    cluster.pods(runner("a", "n0", 4), runner("b", "n1", 3))
    return cluster.pods(runner("stays", "n2", 1, owners=()))


async def test_by_default_it_only_says_what_it_would_move() -> None:
    rounds = Rounds(fragmented(), shapes=["8"])
    assert await rounds.update() == 300
    assert rounds.moved == []
    (plan,) = rounds.status["plans"]
    assert [(move["pod"], move["target"], move["step"]) for move in plan["moves"]] == [
        ("default/b", "n2", 1),
        ("default/a", "n1", 2),
    ]
    assert plan["for"] == "1x8"
    assert plan["proven"] is True
    assert rounds.status["shapes"] == [{"shape": "1x8", "fitting": 0, "possible": 1}]
    assert rounds.ready == (True, "Advising", "2 pods would be moved, and none is")
    assert list(rounds.controller.shapes())[1] == (("p", "1x8", "together"), 1)


async def test_jobs_are_ordered_only_for_places_that_are_free_and_the_rest_is_planned_again() -> (
    None
):
    rounds = Rounds(fragmented(), shapes=["8"], mode="Migrate")
    await rounds.update()
    assert rounds.moved == [("b", "n2")]
    await rounds.update(after=300)
    assert rounds.moved == [("b", "n2")]  # under way
    rounds.cluster.pods(runner("b", "n2", 3))
    rounds.orders.over = set(rounds.orders.jobs)
    await rounds.update(after=300)
    assert rounds.moved == [("b", "n2"), ("a", "n1")]
    rounds.cluster.pods(runner("a", "n1", 4))
    rounds.orders.over = set(rounds.orders.jobs)
    await rounds.update(after=300)
    assert rounds.status["plans"] == []
    assert rounds.status["moves"] == 2


async def test_the_loop_goes_on_while_moves_are_searched_and_what_is_outdated_orders_nothing() -> (
    None
):
    rounds, is_released = Rounds(fragmented(), shapes=["8"], mode="Migrate"), threading.Event()

    def make_state() -> ClusterState:
        assert is_released.wait(30)
        return rounds.cluster.state

    rounds.controller.take_snapshot = lambda: make_state
    round_of_search = asyncio.create_task(rounds.update())
    await asyncio.sleep(0.01)
    assert not round_of_search.done()
    rounds.cluster.state.plugin(DefragPolicies).upsert(make_policy(shapes=["8"], mode="Advise"))
    is_released.set()
    await round_of_search
    assert rounds.moved == []
    rounds.start()
    rounds.cluster.state.plugin(DefragPolicies).upsert(make_policy(shapes=["8"], mode="Migrate"))
    await rounds.update()
    assert rounds.moved == [("b", "n2")]


async def test_a_gang_moves_as_a_set_of_jobs() -> None:
    cluster = make_cluster(4).pods(runner("x", "n2", 4, owners=()), runner("y", "n3", 4, owners=()))
    cluster.pod_groups(make_pod_group("default/g", 2))
    cluster.pods(*(runner(f"g-{at}", f"n{at}", 2).gang("default/g") for at in range(2)))
    rounds = Rounds(cluster, shapes=["8"], mode="Migrate")
    await rounds.update()
    jobs = [make_job(order) for order in rounds.orders.jobs.values()]
    groups = {job["metadata"]["labels"]["operators.koordinator.sh/migration-group"] for job in jobs}
    sizes = [
        job["metadata"]["annotations"]["operators.koordinator.sh/migration-group-size"]
        for job in jobs
    ]
    assert (len(jobs), len(groups), sizes) == (2, 1, ["2", "2"])


async def test_moves_per_hour_are_limited_also_after_a_restart() -> None:
    cluster = make_cluster(3).pods(runner("a", "n0", 2), runner("b", "n1", 2))
    cluster.pods(runner("c", "n2", 3, owners=()))
    rounds = Rounds(cluster, shapes=["2x8"], mode="Migrate", maxMovesPerHour=1)
    await rounds.update()
    assert rounds.moved == []
    assert "1 at a time" in rounds.status["plans"][0]["message"]
    rounds = Rounds(cluster, shapes=["1x8"], mode="Migrate", maxMovesPerHour=1)
    await rounds.update()
    assert len(rounds.moved) == 1
    rounds.orders.jobs.clear()
    rounds.start()
    await rounds.update(after=300)
    assert rounds.moved == []
    await rounds.update(after=3600)
    assert len(rounds.moved) == 1


async def test_only_waiting_jobs_that_the_policy_names_have_pods_moved() -> None:
    cluster = fragmented().pods(make_pod("research/w").gpu(8).priority(5).created(NOW - 60))
    for waiting, count in (
        (None, 0),
        ({"namespaces": ["other"]}, 0),
        ({"namespaces": ["research"], "after": "2m"}, 0),
        ({"minPriority": 6}, 0),
        ({"namespaces": ["research"], "after": "30s", "minPriority": 5}, 1),
        ({}, 1),
    ):
        rounds = Rounds(cluster, **({"waiting": waiting} if waiting is not None else {}))
        await rounds.update()
        assert len(rounds.status["plans"]) == count, waiting


async def test_nothing_moves_outside_windows_against_budgets_or_unread_jobs() -> None:
    time = datetime.fromtimestamp(NOW, UTC)
    closed = [{"begin": f"{(time.hour + 2) % 24:02}:00", "end": f"{(time.hour + 3) % 24:02}:00"}]
    rounds = Rounds(fragmented(), shapes=["8"], mode="Migrate", windows=closed)
    await rounds.update()
    assert rounds.moved == []
    assert rounds.status["plans"][0]["moves"]
    cluster = make_cluster(2).pods(runner("a", "n0", 2).labels(app="x"))
    cluster.pods(runner("b", "n1", 2).labels(app="x"))
    rounds = Rounds(cluster, shapes=["8"], mode="Migrate")
    rounds.budgets = (Budget("default", select_labels(app="x"), 0),)
    await rounds.update()
    assert rounds.moved == []
    rounds.orders.fails = True
    rounds.budgets = ()
    await rounds.update(after=300)
    assert rounds.ready[1] == "Failed"


async def test_paused_invalid_and_deleted_policies_move_nothing() -> None:
    rounds = Rounds(fragmented(), shapes=["8"], mode="Migrate", paused=True)
    await rounds.update()
    assert rounds.ready[:2] == (False, "Paused")
    rounds = Rounds(fragmented(), shapes=["eight"])
    await rounds.update()
    assert rounds.ready[:2] == (False, "Invalid")
    rounds.cluster.state.plugin(DefragPolicies).policies.clear()
    assert await rounds.update() is None


@pytest.mark.parametrize(
    ("day", "clock", "is_open"),
    [
        (5, "21:59", False),
        (5, "22:00", True),
        (6, "05:59", True),
        (6, "06:00", False),
        (6, "22:00", False),
        (7, "05:00", False),
    ],
)
def test_windows_over_midnight_belong_to_the_day_on_which_they_begin(
    day: int,
    clock: str,
    is_open: bool,  # noqa: FBT001 - a table
) -> None:
    friday = MoveWindow(22 * 60, 6 * 60, frozenset({4}))
    hour, minute = map(int, clock.split(":"))
    now = datetime(2026, 6, day, hour, minute, tzinfo=UTC).timestamp()  # the 5th is a Friday
    assert friday.is_open(now) is is_open


@given(
    recent=st.lists(st.floats(0, 7200)), per_hour=st.integers(0, 20), per_plan=st.integers(1, 20)
)
def test_no_hour_has_more_moves_than_allowed(
    recent: list[float], per_hour: int, per_plan: int
) -> None:
    settings = DefragSettings(per_hour=per_hour, per_plan=per_plan)
    left = settings.left(recent, 7200)
    assert 0 <= left <= per_plan
    assert left == 0 or left + sum(time > 3600 for time in recent) <= per_hour
