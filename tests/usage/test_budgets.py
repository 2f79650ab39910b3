"""Budgets of GPU hours: nothing new starts in a quota that has used up those of the month."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.support.laws import examples
from tests.usage.instants import CARD, at

from koord.api.elasticquota import ElasticQuotaStatus
from koord.core.model.gangs import MatchPolicy
from koord.core.usage.budget_plugin import Budgets
from koord.core.usage.budgets import BudgetRecord, MonthlyUse
from koord.core.usage.periods import find_period, month_at
from koord.core.usage.reasons import BudgetSpent
from koord.kube.translate.budget_records import encode_budget, read_budget

if TYPE_CHECKING:
    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster

GPU = "nvidia.com/gpu"
EIGHT = at("08:00") / 1_000
HOUR = 3_600.0
DECEMBER = find_period("2026-12").window.start / 1_000
LIMIT = {"max_gpu_hours_per_month": 8}


def make_team(**queue: Any) -> FakeCluster:
    cluster = make_cluster(4).quotas(
        make_quota("team", max={GPU: 99}, queue=queue or LIMIT),
        make_quota("rich", max={GPU: 99}),
    )
    cluster.state.advance(EIGHT)
    return cluster


def job(name: str, gpus: int = 1, quota: str = "team") -> PodBuilder:
    return make_pod(name).quota(quota).gpu(gpus).created(EIGHT)


def runs(name: str, gpus: int) -> PodBuilder:
    return job(name, gpus).running("n0")


def go_on(cluster: FakeCluster, now: float) -> list[str]:
    cluster.state.advance(now)
    return cluster.step(now)


def test_nothing_new_starts_once_the_hours_are_used_up_until_the_month_ends() -> None:
    cluster = make_team().pods(runs("old", 8))
    assert go_on(cluster, EIGHT + HOUR - 1) == []
    cluster.pods(job("early").created(EIGHT + HOUR - 1))
    assert go_on(cluster, EIGHT + HOUR - 1) == ["early"], "one second is left"
    cluster.pods(job("late"), job("other", quota="rich"))
    assert go_on(cluster, EIGHT + HOUR) == ["other"]
    assert cluster.reasons() == {"late": BudgetSpent("team", "2026-11", 8, 8, int(DECEMBER))}
    assert cluster.reasons()["late"].text() == (
        "queue team has used 8 GPU hours of 2026-11, and 8 may be (maxGpuHoursPerMonth): "
        "nothing new starts in it before 2026-12-01T00:00:00Z"
    )
    assert "old" in {pod.name for pod in cluster.state.pods.values() if pod.node}
    assert cluster.state.next_due() <= DECEMBER
    cluster.delete_pods("old")
    assert go_on(cluster, DECEMBER - 1) == [], "what it has used stays used, whatever is deleted"
    assert go_on(cluster, DECEMBER) == ["late"]


def test_a_larger_budget_lets_start_what_waits() -> None:
    cluster = make_team().pods(runs("old", 8), job("late"))
    assert go_on(cluster, EIGHT + 2 * HOUR) == []
    cluster.quotas(make_quota("team", max={GPU: 99}, queue={"max_gpu_hours_per_month": 17}))
    assert go_on(cluster, EIGHT + 2 * HOUR) == ["late"]


def test_a_started_gang_is_completed_and_repaired_and_does_not_grow() -> None:
    cluster = make_team()
    cluster.pod_groups(make_pod_group("default/g", 2))
    members = [job(f"g-{number}", 4).gang("default/g") for number in range(2)]
    cluster.pods(*members)
    assert go_on(cluster, EIGHT) == ["g-0", "g-1"]
    cluster.pods(*(member.released("n0", "p").running("n0") for member in members))
    go_on(cluster, EIGHT + HOUR)
    cluster.delete_pods("g-1")
    cluster.pods(job("g-2", 4).gang("default/g"), job("g-3", 4).gang("default/g"))
    started = go_on(cluster, EIGHT + HOUR)
    assert len(started) == 1, "the member that it lacks, and no other one"
    assert {type(reason) for reason in cluster.reasons().values()} == {BudgetSpent}


def test_a_started_gang_whose_minimum_is_raised_grows_no_further() -> None:
    for policy in (MatchPolicy.ONCE_SATISFIED, MatchPolicy.WAITING_AND_RUNNING):
        cluster = make_team()
        cluster.pod_groups(make_pod_group("default/g", 1).match_policy(policy))
        cluster.pods(job("g-0", 8).gang("default/g"))
        assert go_on(cluster, EIGHT) == ["g-0"]
        cluster.pods(job("g-0", 8).gang("default/g").released("n0", "p").running("n0"))
        go_on(cluster, EIGHT + HOUR)
        cluster.pod_groups(make_pod_group("default/g", 3).match_policy(policy))
        cluster.pods(*(job(f"g-{number}").gang("default/g") for number in (1, 2)))
        assert go_on(cluster, EIGHT + HOUR) == []
        assert {type(reason) for reason in cluster.reasons().values()} == {BudgetSpent}


def test_a_member_that_never_had_a_turn_gets_its_gang_around_no_budget() -> None:
    cluster = make_team().pods(runs("old", 8))
    cluster.pod_groups(make_pod_group("default/g", 3))
    guard = job("guard", 0).gang("default/g").not_ours().running("n0")
    cluster.pods(guard, *(job(f"g-{number}").gang("default/g") for number in range(2)))
    assert go_on(cluster, EIGHT + HOUR) == []
    assert {type(reason) for reason in cluster.reasons().values()} == {BudgetSpent}


def test_no_member_of_another_quota_gets_its_gang_around_a_budget() -> None:
    cluster = make_team().pods(runs("old", 8))
    cluster.pod_groups(make_pod_group("default/g", 2))
    first, second = job("g-0", quota="rich"), job("g-1")
    cluster.pods(first.gang("default/g"), second.gang("default/g"))
    assert go_on(cluster, EIGHT + HOUR) == []
    assert {type(reason) for reason in cluster.reasons().values()} == {BudgetSpent}


def test_after_a_restart_the_same_is_known_by_what_the_status_keeps() -> None:
    """Pods that have ended and are deleted count as before; what runs is counted on."""
    cluster = make_team().pods(runs("gone", 4), runs("stays", 2))
    go_on(cluster, EIGHT + HOUR)
    cluster.delete_pods("gone")
    go_on(cluster, EIGHT + HOUR)
    before = cluster.state.plugin(Budgets)
    assert before.remember(EIGHT + HOUR) == {"team": 8}
    status = encode_budget(before.record("team"), 8)
    assert (status.month, status.gpu_hours) == ("2026-11", "6.000")
    kept = ElasticQuotaStatus(budget=status).model_dump_json(by_alias=True, exclude_none=True)
    record = read_budget(kept.encode())
    assert record == before.record("team")
    again = make_cluster(4).quotas(
        replace(make_quota("team", max={GPU: 99}, queue=LIMIT), budget_record=record)
    )
    again.pods(runs("stays", 2), job("late"))
    assert go_on(again, EIGHT + 2 * HOUR) == []
    assert isinstance(again.reason(), BudgetSpent)


def test_what_somebody_writes_into_a_status_is_no_record() -> None:
    for text in (
        b'{"budget": 1}',
        b'{"budget": {"month": "2026-13", "held": 1, "until": 1}}',
        b'{"budget": {"month": "2026-11", "held": "x"}}',
        b'{"budget": {}}',
        b"{}",
    ):
        assert read_budget(text) is None
    lied = read_budget(b'{"budget": {"month": "2026-11", "held": -9, "until": -9}}')
    assert lied == BudgetRecord(find_period("2026-11").window.start, 0, 0)


SPANS = st.lists(
    st.tuples(
        st.integers(-40 * 24, 70 * 24),  # hours around November
        st.integers(0, 20 * 24),
        st.integers(0, 8 * CARD),
        st.sampled_from("ab"),
    ),
    max_size=6,
)


@settings(max_examples=examples(60))
@given(SPANS, st.lists(st.integers(0, 60 * 24), min_size=1, max_size=6).map(sorted), st.data())
def test_use_is_that_of_the_month_wherever_it_is_looked_at_and_restarted(
    spans: list[tuple[int, int, int, str]], looks: list[int], data: st.DataObject
) -> None:
    """A look sees pods that have begun; those that have ended stay to be seen."""
    first = find_period("2026-11").window.start
    pods = [
        (f"p{number}", first + start * 3_600_000, length * 3_600_000, milli, quota)
        for number, (start, length, milli, quota) in enumerate(spans)
    ]
    use = MonthlyUse()
    for look in looks:
        now = first + look * 3_600_000
        for uid, start, length, milli, quota in pods:
            if start > now:
                continue
            if start + length <= now:
                use.note_ended(uid, quota, milli, (start, start + length), now)
            else:
                use.hold(uid, quota, milli, start, now)
        month = month_at(now).window
        for quota in "ab":
            exact = sum(
                milli * max(0, min(start + length, now) - max(start, month.start))
                for _, start, length, milli, of in pods
                if of == quota
            )
            assert use.used(quota, now) == exact
        if data.draw(st.booleans()):
            use, before = MonthlyUse(), use
            for quota in "ab":
                use.restore(quota, before.record(quota, now), now)
