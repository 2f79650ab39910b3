"""Reclaiming over-use, with a fake evictor that gives any outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import GPU, make_pod, make_quota
from tests.core.test_reclaim import Scene
from tests.objects import upsert_quota

from koord.controllers.eviction import EvictionController
from koord.controllers.reclaim import ReclaimOptions, Reclaims
from koord.core.eviction import reclaim
from koord.core.eviction.limits import EvictionLimits
from koord.core.model.patience import Patience
from koord.core.model.pods import Handling
from koord.core.reservation.model import ReservationPhase, ReservationState
from koord.core.reservation.plugin import Reservations
from koord.kube.evictor import Eviction

if TYPE_CHECKING:
    from koord.core.model.pods import Pod


class FakeEvictor:
    """Applies every write to the state, as the watch would; ``answers`` by pod."""

    def __init__(self, scene: Scene) -> None:
        self.answers: dict[str, Eviction] = {}
        self.protected: set[str] = set()
        self.unmarkable: set[str] = set()
        self.mark_count: Counter[str] = Counter()
        self.evicted: list[str] = []
        self.overruled: list[str] = []
        self.asked: Counter[str] = Counter()
        self.notices: dict[str, float] = {}
        self.spared: list[str] = []
        self.now = 0.0
        self.marks: dict[str, str] = {}
        self._state = scene.state

    async def check(self, pods: tuple[Pod, ...]) -> Eviction:
        is_protected = self.protected & {pod.name for pod in pods}
        return Eviction.PROTECTED if is_protected else Eviction.EVICTED

    async def protect(self, pod: Pod, text: str, since: float) -> bool:
        self.marks[pod.name] = text
        return self._set(pod, is_eviction_pending=False, protected=since)

    async def overrule(self, pod: Pod) -> Eviction:
        self.evicted.append(pod.name)
        self.overruled.append(pod.name)
        self._state.remove_pod(pod.uid)
        return Eviction.EVICTED

    async def mark(self, pod: Pod, text: str, *, seconds: float) -> bool:
        self.mark_count[pod.name] += 1
        if pod.name in self.unmarkable:
            return False
        self.marks[pod.name] = text
        if seconds:
            self.notices[pod.name] = seconds
        return self._set(pod, is_eviction_pending=True)

    async def unmark(self, pod: Pod, cancelled: str = "") -> bool:
        if cancelled:
            self.spared.append(pod.name)
        return self._set(pod, is_eviction_pending=False)

    async def reclaim(self, pod: Pod) -> Eviction:
        self.asked[pod.name] += 1
        plugin = self._state.plugin(Reservations)
        if pod.handling is Handling.RESERVE:
            self.evicted.append(pod.name)
            plugin.upsert(
                replace(
                    plugin.reservations[pod.uid], status=ReservationState(ReservationPhase.PENDING)
                )
            )
            return Eviction.EVICTED
        answer = self.answers.get(pod.name, Eviction.EVICTED)
        if answer is Eviction.EVICTED:
            self.evicted.append(pod.name)
            self._state.remove_pod(pod.uid)
        return answer

    def _set(self, pod: Pod, *, is_eviction_pending: bool, protected: float = 0.0) -> bool:
        seen = self._state.observed(pod.uid)
        if seen is not None:
            self._state.upsert_pod(
                replace(
                    seen,
                    is_eviction_pending=is_eviction_pending,
                    is_terminating=is_eviction_pending,
                    protected=protected,
                    marked=self.now if is_eviction_pending else 0.0,
                )
            )
        return True


class Reporter:
    """Records the reports."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.plans: list[str] = []
        self.protected: list[str] = []

    def announce_plan(self, quota: Any, text: str) -> None:
        self.plans.append(f"{quota.name}: {text}")

    def announce_protected(self, quota: Any, text: str) -> None:
        self.protected.append(f"{quota.name}: {text}")

    def announce_overuse(self, quota: Any, text: str) -> None:
        self.told.append(f"{quota.name}: {text}")

    def announce_reclaimed(self, pod: Any, _: str) -> None:
        self.told.append(pod.name)

    def announce_soft_eviction(self, pod: Any, text: str) -> None:
        self.told.append(f"{pod.name} may end: {text.rpartition('. ')[2]}")

    def announce_spared(self, pod: Any, _: str) -> None:
        self.told.append(f"{pod.name} stays")

    def retract_overuse(self, quota: Any) -> None:
        self.told.append(f"{quota.name} is well")


class Stage:
    """A scene, its controller, and a manual clock."""

    def __init__(
        self,
        scene: Scene | None = None,
        *,
        is_on: bool = True,
        is_dry: bool = False,
        rate: int = 0,
        **more: Any,
    ) -> None:
        self.scene = scene or Scene(**more)
        self.evictor = FakeEvictor(self.scene)
        self.reporter = Reporter()
        self.now = 0.0
        options = ReclaimOptions(is_on, 120, 1, is_dry, rate)
        evictions = EvictionController(
            self.scene.state,
            lambda: True,
            lambda: self.now,
            EvictionLimits(options.limits),
            300.0,
            Patience(stuck_after=60, grace_limit=600, ask_limit=300),
        )
        self.controller = Reclaims(
            evictions,
            self.evictor,  # type: ignore[arg-type]
            self.reporter,  # type: ignore[arg-type]
            lambda: self.scene.blocked,
            options,
        )

    def look(self, after: float = 0.0) -> None:
        self.now += after
        self.evictor.now = self.now
        asyncio.run(self.controller.controller.look(self.controller))

    def wait_and_look(self) -> None:
        self.look()
        self.look(121)

    @property
    def evicted(self) -> list[str]:
        return sorted(self.evictor.evicted)


def test_over_use_is_reclaimed_once_after_the_grace_period() -> None:
    stage = Stage()
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    stage.scene.want(4)
    stage.look()
    stage.look(120)
    assert stage.evicted == []
    stage.look(1)
    assert stage.evicted == ["p0"]
    text = "quota a uses 16 nvidia.com/gpu but is entitled to 12"
    assert stage.reporter.told[0].startswith(f"a: {text}")
    assert stage.reporter.told[1:] == ["p0"]
    assert stage.evictor.marks["p0"] == f"{text}. For default/w."
    stage.look(500)
    assert stage.evicted == ["p0"]
    assert stage.reporter.told[-1] == "a is well"


def test_a_dry_run_says_who_would_go() -> None:
    stage = Stage(is_dry=True)
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    stage.scene.want(4)
    stage.wait_and_look()
    assert stage.evicted == []
    assert not stage.reporter.told
    assert not stage.scene.state.quotas.without_leftovers
    (plan,) = stage.reporter.plans
    assert plan.startswith("a: would evict (dry run) default/p0 (1 pod) for ")
    assert "quota a uses 16 nvidia.com/gpu but is entitled to 12" in plan


def test_a_plan_is_announced_before_it_is_carried_out() -> None:
    stage = Stage()
    stage.scene.gang("g", 4, minimum=4)
    stage.evictor.answers = {"g-0": Eviction.PROTECTED}
    stage.scene.want(8)
    stage.wait_and_look()
    stage.look(121)
    assert stage.evicted == []
    (plan,) = stage.reporter.plans
    assert plan.startswith("a: evicting default/g (4 pods) for ")


@pytest.mark.parametrize("is_dry", [True, False])
def test_a_plan_names_nobody_whom_a_budget_protects(*, is_dry: bool) -> None:
    stage = Stage(is_dry=is_dry)
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    stage.evictor.protected = {"p0", "p1"}
    stage.scene.want(4)
    stage.wait_and_look()
    (plan,) = stage.reporter.plans
    assert " default/p2 (1 pod) for " in plan
    assert stage.evicted == ([] if is_dry else ["p2"])


def test_budgets_protect_for_a_while_and_both_sides_are_told_until_when() -> None:
    stage = Stage()
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    stage.evictor.protected = {f"p{at}" for at in range(4)}
    stage.scene.want(4)
    stage.look()
    stage.look(121)
    assert stage.evicted == []
    text = "quota a uses 16 nvidia.com/gpu but is entitled to 12. For default/w. "
    text += "PodDisruptionBudgets protect it until 1970-01-01T00:12:01Z; then it is evicted"
    assert stage.evictor.marks["p0"].startswith(text)
    (told,) = stage.reporter.protected
    assert told.startswith(f"a: {text}")
    assert {pod.name for pod in stage.scene.state.pods.values() if pod.protected} == {"p0"}
    # The next process knows it from the pods.
    again = Stage(stage.scene)
    again.now, again.evictor.protected = stage.now, stage.evictor.protected
    again.look()
    for _ in range(4):
        again.look(121)
    assert again.evicted == []
    again.look(121)
    assert again.evictor.overruled == again.evicted == ["p0"]
    assert not again.reporter.protected, "it was told before"


def test_protection_ends_with_the_need() -> None:
    stage = Stage()
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    stage.evictor.protected = {f"p{at}" for at in range(4)}
    stage.scene.want(4)
    stage.wait_and_look()
    assert stage.scene.state.protected
    stage.scene.blocked.clear()
    stage.look(121)
    assert not stage.scene.state.protected
    assert stage.evictor.spared == ["p0"]
    stage.look(1000)
    stage.look(121)
    assert stage.evicted == []


def test_a_budget_that_changes_between_two_questions_gains_no_time() -> None:
    stage = Stage()
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    stage.evictor.answers = {f"p{at}": Eviction.PROTECTED for at in range(4)}
    stage.scene.want(4)
    stage.look()
    for _ in range(6):
        stage.look(121)
    assert stage.evicted == ["p0"]


def test_what_is_refused_for_other_reasons_is_not_overruled() -> None:
    stage = Stage()
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    stage.evictor.answers = {f"p{at}": Eviction.REFUSED for at in range(4)}
    stage.scene.want(4)
    stage.look()
    for _ in range(9):
        stage.look(121)
    assert stage.evicted == []
    assert not stage.scene.state.protected


def test_the_rest_of_a_gang_goes_after_the_same_time() -> None:
    stage = Stage()
    stage.scene.gang("g", 4, minimum=4)
    stage.evictor.answers = {"g-2": Eviction.PROTECTED}
    stage.scene.want(8)
    stage.wait_and_look()
    stage.look(590)
    assert stage.evicted == ["g-0", "g-1", "g-3"]
    stage.look(20)
    assert stage.evictor.overruled == ["g-2"]


def test_pods_that_hang_give_nothing_back_and_others_go() -> None:
    stage = Stage()
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    hangs = stage.scene.state.pods["uid-default-p0"]
    leaves = replace(hangs, is_terminating=True, gone_by=60.0, deleted=30.0)
    stage.scene.state.upsert_pod(leaves)
    stage.scene.want(4)
    stage.look()
    assert stage.evicted == []
    stage.look(121)
    assert stage.evicted == ["p1"]


@pytest.mark.parametrize(("finalizers", "evicted"), [((), []), (("evil/hold",), ["p2"])])
def test_after_a_pod_of_a_quota_hangs_no_other_that_may_is_waited_for(
    finalizers: tuple[str, ...], evicted: list[str]
) -> None:
    stage = Stage()
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    for name, deleted in (("p0", 30.0), ("p1", 100.0)):
        pod = stage.scene.state.pods[f"uid-default-{name}"]
        leaves = replace(pod, is_terminating=True, gone_by=deleted + 30, deleted=deleted)
        stage.scene.state.upsert_pod(replace(leaves, finalizers=finalizers))
    stage.scene.want(4)
    stage.look()
    stage.look(121)
    assert stage.evicted == evicted


def test_a_quota_loses_so_many_pods_a_minute() -> None:
    stage = Stage(rate=1)
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    stage.scene.want(8)
    stage.wait_and_look()
    assert stage.evicted == ["p0"]
    stage.look(121)
    assert stage.evicted == ["p0", "p1"]


def test_nothing_is_reclaimed_if_disabled() -> None:
    stage = Stage(is_on=False)
    stage.scene.gang("g", 4, minimum=4)
    stage.scene.want(8)
    stage.wait_and_look()
    assert stage.evicted == []


def test_another_unit_is_evicted_instead_of_a_protected_one() -> None:
    stage = Stage()
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    stage.evictor.protected = {"p0", "p1"}
    stage.scene.want(4)
    stage.wait_and_look()
    assert stage.evicted == ["p2"]
    assert not stage.scene.state.eviction_pending


def test_another_goes_in_place_of_a_pod_that_cannot_be_marked() -> None:
    """As one that its owner has filled; it is not tried at every look."""
    stage = Stage()
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    stage.evictor.unmarkable = {"p0", "p1"}
    stage.scene.want(4)
    stage.wait_and_look()
    assert stage.evicted == ["p2"]
    stage.scene.single("p2", priority=2)
    stage.look()
    stage.look(30)
    assert stage.evictor.mark_count["p0"] == stage.evictor.mark_count["p1"] == 1


def test_refused_pods_are_unmarked() -> None:
    stage = Stage()
    stage.scene.gang("g", 4, minimum=4)
    stage.evictor.answers = {"g-0": Eviction.PROTECTED}
    stage.scene.want(8)
    stage.wait_and_look()
    assert stage.evicted == []
    assert not stage.scene.state.eviction_pending
    assert stage.reporter.told == []
    del stage.evictor.answers["g-0"]
    stage.look(121)
    assert stage.evicted == ["g-0", "g-1", "g-2", "g-3"]


@pytest.mark.parametrize("answer", [Eviction.PROTECTED, Eviction.UNKNOWN])
def test_rest_of_a_gang_is_retried_until_evicted(answer: Eviction) -> None:
    stage = Stage()
    stage.scene.gang("g", 4, minimum=4)
    stage.evictor.answers = {"g-2": answer}
    stage.scene.want(8)
    stage.wait_and_look()
    assert stage.evicted == ["g-0", "g-1", "g-3"]
    stage.look(1)
    stage.look(1)
    assert stage.evictor.asked["g-2"] == 3
    stage.evictor.answers = {}
    stage.look(1)
    assert stage.evicted == ["g-0", "g-1", "g-2", "g-3"]


def test_rest_of_a_gang_is_evicted_after_an_unknown_outcome() -> None:
    stage = Stage()
    stage.scene.gang("g", 4, minimum=4)
    stage.evictor.answers = {"g-0": Eviction.UNKNOWN}
    stage.scene.want(8)
    stage.wait_and_look()
    assert stage.evicted == ["g-1", "g-2", "g-3"]


def test_marks_of_a_previous_process_are_completed_even_if_disabled() -> None:
    stage = Stage(is_on=False)
    stage.scene.gang("g", 3, minimum=3)
    for at in range(3):
        pod = stage.scene.state.pods[f"uid-default-g-{at}"]
        stage.scene.put(replace(pod, is_eviction_pending=True, is_terminating=True))
    stage.scene.state.remove_pod("uid-default-g-1")
    stage.look()
    assert stage.evicted == ["g-0", "g-2"]


def test_whole_gang_is_unmarked_if_it_cannot_be_evicted() -> None:
    stage = Stage(is_on=False)
    stage.scene.gang("g", 3, minimum=3)
    for at in range(3):
        pod = stage.scene.state.pods[f"uid-default-g-{at}"]
        stage.scene.put(replace(pod, is_eviction_pending=True, is_terminating=True))
    stage.evictor.answers = {"g-0": Eviction.PROTECTED}
    stage.look()
    assert stage.evicted == []
    assert not stage.scene.state.eviction_pending


def test_the_quota_furthest_over_its_share_is_reclaimed_from_first() -> None:
    stage = Stage(a=0, b=4)
    scene = stage.scene
    upsert_quota(scene.state, make_quota("z", max={GPU: 16}))
    for name, count in (("a", 4), ("z", 12)):
        for at in range(count):
            scene.put(scene.run(make_pod(f"{name}{at}").gpu(1).quota(name), 1))
    scene.want(1)
    stage.wait_and_look()
    (evicted,) = stage.evicted
    assert evicted.startswith("z")


@pytest.mark.isolates
def test_failure_in_one_quota_does_not_stop_reclaiming_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(a=4, b=4)
    for at in range(4):
        stage.scene.single(f"p{at}", priority=at)
    plan = reclaim.plan_reclaim

    def fail_once(state: Any, ledger: Any, name: str, *more: Any) -> Any:
        if name == "b":
            raise ZeroDivisionError
        return plan(state, ledger, name, *more)

    monkeypatch.setattr("koord.controllers.reclaim.plan_reclaim", fail_once)
    monkeypatch.setattr(type(stage.controller), "_find_due", lambda self: ["b", "a"])
    stage.scene.want(8)
    stage.look()
    assert stage.evicted == ["p0", "p1"]


class Asking(Stage):
    """Four pods that fill the cluster; some want time to end by themselves, in seconds."""

    def __init__(self, gpus: int = 8, **seconds: float) -> None:
        super().__init__()
        for at in range(4):
            self.scene.single(f"p{at}", priority=at)
        for name, wish in seconds.items():
            pod = self.scene.state.pods[f"uid-default-{name}"]
            self.scene.state.remove_pod(pod.uid)
            self.scene.put(replace(pod, soft_eviction=wish))
        self.scene.want(gpus)
        self.wait_and_look()

    @property
    def marked(self) -> list[str]:
        pods = self.scene.state.pods
        return sorted(pods[uid].name for uid in self.scene.state.eviction_pending)


def test_all_victims_of_a_plan_wait_for_the_last_that_wants_time() -> None:
    stage = Asking(p1=90)
    assert (stage.evicted, stage.marked) == ([], ["p0", "p1"])
    assert stage.evictor.notices == {"p1": 90}
    assert "p1 may end: It has 90 s to save its work and end by itself." in stage.reporter.told
    for _ in range(89):
        stage.look(1)
    assert stage.evicted == []
    assert not any(told.startswith("a:") for told in stage.reporter.told)
    stage.look(1)
    assert stage.evicted == ["p0", "p1"]
    assert sum(told.startswith("a:") for told in stage.reporter.told) == 2


def test_nobody_gets_more_time_than_the_limit() -> None:
    stage = Asking(p1=10_000)
    assert stage.evictor.notices == {"p1": 300}
    for _ in range(100):
        stage.look(3)
    assert stage.evicted == ["p0", "p1"]


def test_the_others_go_once_those_that_wanted_time_have_ended() -> None:
    stage = Asking(p1=90)
    stage.look(10)
    stage.scene.state.remove_pod("uid-default-p1")
    stage.look(1)
    assert stage.evicted == ["p0"]
    assert "p1" in stage.reporter.told


def test_victims_stay_if_the_unit_that_benefits_is_gone() -> None:
    stage = Asking(p0=90, p1=90)
    stage.look(4)
    assert stage.evictor.spared == []
    stage.scene.blocked.clear()
    stage.look(4)
    assert stage.evictor.spared == [], "it may be about to be planned again"
    stage.look(2)
    assert sorted(stage.evictor.spared) == ["p0", "p1"]
    assert (stage.evicted, stage.marked) == ([], [])
    assert "p0 stays" in stage.reporter.told


def test_what_cannot_go_on_is_evicted_even_if_nobody_needs_it_any_more() -> None:
    stage = Stage()
    stage.scene.gang("g", 4, minimum=4)
    for at in range(4):
        pod = stage.scene.state.pods[f"uid-default-g-{at}"]
        stage.scene.state.remove_pod(pod.uid)
        stage.scene.put(replace(pod, soft_eviction=60))
    stage.scene.want(8)
    stage.wait_and_look()
    assert len(stage.evictor.notices) == 4
    stage.scene.state.remove_pod("uid-default-g-0")  # it has ended by itself
    stage.scene.blocked.clear()
    stage.look(6)
    assert stage.evicted == ["g-1", "g-2", "g-3"]


def test_the_next_leader_waits_for_the_deadline_of_a_mark() -> None:
    stage = Stage(is_on=False)
    stage.scene.single("p0")
    pod = stage.scene.state.pods["uid-default-p0"]
    stage.scene.put(
        replace(pod, is_eviction_pending=True, is_terminating=True, marked=5.0, soft_eviction=60)
    )
    stage.look(64)
    assert stage.evicted == []
    stage.look(1)
    assert stage.evicted == ["p0"]
