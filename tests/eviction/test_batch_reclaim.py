"""Batch pods leave short nodes of a cluster: which ones are meant, what keeps them, how many go."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster
from tests.eviction.test_rebalance import owned
from tests.support.laws import examples

from koord.core.balance.batch_reclaim import BatchReclaimRules, ReclaimPast
from koord.core.balance.model import Thresholds
from koord.core.balance.outcome import HAS_JOB
from koord.core.balance.policy import PoolSettings, RebalanceSettings
from koord.core.eviction.batch_reclaim import is_batch, look
from koord.core.eviction.model import Moment
from koord.core.eviction.rebalance import BalanceContext
from koord.core.load.model import NodeLoad, PodLoad
from koord.core.load.plugin import Loads
from koord.core.migration.model import MigrationOptions
from koord.core.model.budgets import Budget
from koord.core.model.pods import Handling, MoveHints, Pod, PodPhase
from koord.core.model.selectors import Requirement, SelectorOperator

if TYPE_CHECKING:
    from koord.core.balance.batch_reclaim import ReclaimOutcome

NOW = 100_000.0
GI = 1 << 30
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
RULES = BatchReclaimRules()
SETTINGS = RebalanceSettings((PoolSettings("default", Thresholds()),), batch_reclaim=RULES)
GANG = "default/train"


def batch(name: str, node: str = "n0", gib: int = 4, cpu: int = 4000, **changes: object) -> Pod:
    built = make_pod(name).labels(app="batch").requests(**{CPU: cpu, MEMORY: gib * GI})
    pod = replace(built.running(node).build(), started=NOW - 600, priority=5500)
    return replace(owned(pod, "batch", "Job"), **changes)


def prod(name: str, node: str = "n0", gib: int = 40) -> Pod:
    built = make_pod(name).requests(cpu=8000, memory=gib * GI).running(node).build()
    return owned(replace(built, started=NOW - 600, priority=9500))


def make_cluster(*pods: Pod, offered: int = 16000, nodes: int = 2) -> FakeCluster:
    cluster = FakeCluster()
    cluster.nodes(
        *(
            make_node(f"n{at}")
            .cpu(32000)
            .memory(100 * GI)
            .pods(110)
            .resource(CPU, offered)
            .resource(MEMORY, 40 * GI)
            for at in range(nodes)
        )
    )
    return cluster.pods(*pods)


def report(cluster: FakeCluster, system: int = 0, age: float = 10.0, now: float = NOW) -> None:
    """Have every pod use the memory that it requests, and the nodes some more."""
    for name, _ in cluster.state.table.live_rows():
        uses = {pod.key: {"memory": memory_of(pod)} for pod in cluster.state.pods_on(name)}
        total = sum(use["memory"] for use in uses.values()) + system * GI
        pods = {key: PodLoad(use) for key, use in uses.items()}
        load = NodeLoad(name, updated=now - age, window=60.0, usage={"memory": total}, pods=pods)
        cluster.state.plugin(Loads).upsert(load)


def memory_of(pod: Pod) -> int:
    requests = dict(pod.shape.requests)
    return requests.get(MEMORY, 0) + requests.get("memory", 0)


def run(
    cluster: FakeCluster,
    wanted: RebalanceSettings = SETTINGS,
    past: ReclaimPast | None = None,
    **context: object,
) -> ReclaimOutcome:
    return look(
        cluster.state,
        wanted,
        past or ReclaimPast(),
        BalanceContext(**{"moment": Moment(NOW), **context}),  # type: ignore[arg-type]
    )


def gone(outcome: ReclaimOutcome) -> list[str]:
    return sorted(pod.name for one in outcome.reclaims for pod in one.unit.pods)


def rules_that_keep(outcome: ReclaimOutcome) -> set[str]:
    return {held.refusal.rule for held in outcome.held}


def full_cluster(*more: Pod) -> FakeCluster:
    """70 of 100 GiB are used on the first node: 66 by prod, 4 by one batch pod."""
    cluster = make_cluster(prod("web", gib=62), batch("b-0"), batch("b-1", "n1"), *more)
    report(cluster, system=4)
    return cluster


# --- short of memory ------------------------------------------------------------------------------


def test_a_batch_pod_leaves_a_node_that_uses_too_much_memory() -> None:
    outcome = run(full_cluster())
    assert gone(outcome) == ["b-0"]
    text = outcome.reclaims[0].shortage.text()
    assert text == "the node uses 70.0 % of its memory; batch pods leave from 65 % on"


def test_it_is_off_until_the_policy_says_so() -> None:
    assert gone(run(full_cluster(), replace(SETTINGS, batch_reclaim=None))) == []


def test_nobody_leaves_below_the_threshold() -> None:
    cluster = full_cluster()
    rules = replace(SETTINGS, batch_reclaim=BatchReclaimRules(70.1))
    assert run(cluster, rules).shortages == ()
    rules = replace(SETTINGS, batch_reclaim=BatchReclaimRules(70.0))
    assert gone(run(cluster, rules)) == ["b-0"]


def test_nobody_leaves_a_node_of_which_nothing_is_known() -> None:
    cluster = full_cluster()
    report(cluster, system=4, age=180)
    assert run(cluster).shortages == ()


def test_pods_that_are_about_to_leave_are_enough() -> None:
    cluster = full_cluster(batch("b-2", gib=2))
    assert gone(run(cluster)) == ["b-0"]
    report(cluster, system=2)
    assert run(cluster, moving={"uid-default-b-0": ""}).shortages != ()
    report(cluster)
    assert run(cluster, moving={"uid-default-b-0": ""}).shortages == ()
    assert run(cluster, moving={"default/b-0": ""}).shortages == ()
    cluster.pods(batch("b-0", is_terminating=True))
    assert run(cluster).shortages == ()


def test_pods_that_have_ended_no_longer_count() -> None:
    """The report is an average of five minutes, in which they ran."""
    cluster = full_cluster(batch("b-2"))
    report(cluster, system=2)
    cluster.state.remove_pod("uid-default-b-0")
    cluster.state.remove_pod("uid-default-b-2")
    assert run(cluster).shortages == ()


# --- who is meant ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "is_meant"),
    [
        (batch("b"), True),
        (batch("b", priority=9500), True),
        (replace(prod("p"), priority=5500), True),
        (prod("p"), False),
        (replace(prod("p"), priority=0), False),
        (make_pod("idle").running("n0").build(), False),
        (make_pod("be").labels(**{"koordinator.sh/qosClass": "BE"}).running("n0").build(), True),
    ],
)
def test_which_pods_are_batch_pods(pod: Pod, is_meant: bool) -> None:  # noqa: FBT001
    assert is_batch(pod) is is_meant


def test_a_label_does_not_make_a_prod_pod_of_one_that_uses_batch_resources() -> None:
    liar = make_pod("b-0").labels(**{"koordinator.sh/priority-class": "koord-prod"})
    pod = replace(liar.requests(**{CPU: 1, MEMORY: 8 * GI}).running("n0").build(), started=1.0)
    cluster = make_cluster(prod("web", gib=62), owned(pod))
    report(cluster)
    assert gone(run(cluster)) == ["b-0"]


def test_prod_pods_stay_however_much_they_use() -> None:
    cluster = make_cluster(prod("web", gib=90))
    report(cluster)
    assert len(run(cluster).shortages) == 1
    assert gone(run(cluster)) == []


# --- what keeps them ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"owners": ()}, "E-5"),
        ({"move_hints": MoveHints(has_local_storage=True)}, "E-5"),
        ({"namespace": "kept", "uid": "k"}, "E-5.1"),
    ],
)
def test_what_a_job_would_not_evict_stays(changes: dict[str, object], rule: str) -> None:
    cluster = make_cluster(prod("web", gib=66), batch("b-0", **changes))
    report(cluster)
    outcome = run(cluster, replace(SETTINGS, excluded=frozenset(["kept"])))
    assert gone(outcome) == []
    assert rules_that_keep(outcome) == {rule}


def test_settings_of_moves_let_pods_with_local_storage_go() -> None:
    hints = MoveHints(has_local_storage=True)
    cluster = make_cluster(prod("web", gib=66), batch("b-0", move_hints=hints))
    report(cluster)
    options = MigrationOptions(evicts_local_storage=True)
    assert gone(run(cluster, migration=options)) == ["b-0"]


def test_the_only_pod_of_its_workload_goes_as_well() -> None:
    """It is not moved: there is to be less of it."""
    cluster = make_cluster(prod("web", gib=66), batch("b-0"))
    report(cluster)
    assert gone(run(cluster)) == ["b-0"]


def test_pods_of_other_schedulers_stay() -> None:
    foreign = make_pod("x").not_ours().build().handling
    cluster = make_cluster(prod("web", gib=66), batch("b-0", handling=foreign))
    report(cluster)
    assert gone(run(cluster)) == []


def test_a_pod_with_a_job_is_not_ordered_twice() -> None:
    outcome = run(full_cluster(), find_refusal=lambda _: HAS_JOB)
    assert rules_that_keep(outcome) == {"E-4"}


def test_a_budget_counts_all_who_leave() -> None:
    cluster = make_cluster(
        prod("web-0", gib=66), prod("web-1", "n1", gib=66), batch("b-0"), batch("b-1", "n1")
    )
    report(cluster)
    assert gone(run(cluster)) == ["b-0", "b-1"]
    selector = (Requirement("app", SelectorOperator.IN, ("batch",)),)
    outcome = run(cluster, budgets=(Budget("default", selector, 1),))
    assert gone(outcome) == ["b-0"]
    assert rules_that_keep(outcome) == {"Budget"}


# --- gangs ----------------------------------------------------------------------------------------


def gang_cluster(minimum: int, count: int = 3) -> FakeCluster:
    """A gang on both nodes, of which the first is short."""
    members = (
        replace(
            owned(
                make_pod(f"train-{at}")
                .gang(GANG)
                .requests(**{CPU: 2000, MEMORY: 4 * GI})
                .running(f"n{at % 2}")
                .index(at)
                .build(),
                "train",
                "Job",
            ),
            priority=5500,
            started=NOW - 600,
        )
        for at in range(count)
    )
    cluster = make_cluster().pod_groups(make_pod_group(GANG, minimum))
    cluster.pods(prod("web", gib=60), *members)
    report(cluster)
    return cluster


def test_a_gang_leaves_as_a_whole() -> None:
    outcome = run(gang_cluster(3))
    assert gone(outcome) == ["train-0", "train-1", "train-2"]
    assert len(outcome.reclaims) == 1


def test_members_above_the_minimum_leave_alone() -> None:
    assert gone(run(gang_cluster(2))) == ["train-2"]
    assert gone(run(gang_cluster(1))) == ["train-2"]


def test_a_gang_stays_whole_if_a_budget_spares_one_member() -> None:
    cluster = gang_cluster(3)
    (member,) = (pod for pod in cluster.state.pods.values() if pod.name == "train-1")
    cluster.pods(replace(member, profile=batch("x").profile))
    selector = (Requirement("app", SelectorOperator.IN, ("batch",)),)
    outcome = run(cluster, budgets=(Budget("default", selector, 0),))
    assert gone(outcome) == []
    assert rules_that_keep(outcome) == {"Budget"}


def test_a_gang_with_one_prod_member_is_no_batch_gang() -> None:
    cluster = gang_cluster(3)
    (member,) = (pod for pod in cluster.state.pods.values() if pod.name == "train-1")
    cluster.pods(replace(member, shape=prod("x").shape, priority=9500))
    assert gone(run(cluster)) == []


# --- more bound than offered ----------------------------------------------------------------------

PATIENT = replace(SETTINGS, batch_reclaim=BatchReclaimRules(100.0, 300.0))


def overcommitted_cluster(offered: int = 6000) -> FakeCluster:
    """Three pods of 4000 on a node that offers less by now."""
    pods = [batch(f"b-{at}", priority=5500 + at) for at in range(3)]
    cluster = make_cluster(*pods, offered=offered)
    report(cluster)
    return cluster


def test_batch_pods_above_what_is_offered_leave_after_a_while() -> None:
    cluster, past = overcommitted_cluster(), ReclaimPast()
    assert run(cluster, PATIENT, past).shortages == ()
    assert past.overcommitted == {"n0": NOW}
    report(cluster, now=NOW + 299)
    assert run(cluster, PATIENT, past, moment=Moment(NOW + 299)).shortages == ()
    report(cluster, now=NOW + 300)
    outcome = run(cluster, PATIENT, past, moment=Moment(NOW + 300))
    assert gone(outcome) == ["b-0"]
    assert outcome.reclaims[0].shortage.text() == (
        "batch pods request 12000 (12 CPUs) kubernetes.io/batch-cpu of the node, which offers "
        "6000 (6 CPUs)"
    )


def test_a_pod_that_no_kubelet_has_accepted_evicts_nobody() -> None:
    """Whoever may create a pod may have it name a node, and request what it likes."""
    lie = batch("lie", cpu=10**12, priority=10**9, phase=PodPhase.PENDING, started=0.0)
    cluster, past = make_cluster(batch("b-0"), lie), ReclaimPast({"n0": 1.0})
    report(cluster)
    assert gone(run(cluster, PATIENT, past)) == []
    assert past.overcommitted == {}


def test_without_a_grace_they_stay() -> None:
    settings_ = replace(SETTINGS, batch_reclaim=BatchReclaimRules(100.0))
    past = ReclaimPast({"n0": 1.0})
    assert gone(run(overcommitted_cluster(), settings_, past)) == []
    assert past.overcommitted == {}


def test_they_stay_when_enough_is_offered_again_or_nothing_is_known() -> None:
    past = ReclaimPast({"n0": 1.0})
    assert gone(run(overcommitted_cluster(12000), PATIENT, past)) == []
    assert past.overcommitted == {}
    cluster, past = overcommitted_cluster(), ReclaimPast({"n0": 1.0})
    report(cluster, age=180)
    assert gone(run(cluster, PATIENT, past)) == []
    assert past.overcommitted == {}


def test_a_node_that_offers_no_batch_resource_by_name_keeps_its_pods() -> None:
    cluster = overcommitted_cluster()
    cluster.nodes(make_node("n0").cpu(32000).memory(100 * GI).pods(110))
    assert gone(run(cluster, PATIENT, ReclaimPast({"n0": 1.0}))) == []


def test_reservations_are_nobody() -> None:
    cluster = overcommitted_cluster(8000)
    (pod,) = (pod for pod in cluster.state.pods.values() if pod.name == "b-2")
    cluster.pods(replace(pod, handling=Handling.RESERVE))
    assert gone(run(cluster, PATIENT, ReclaimPast({"n0": 1.0}))) == []


# --- as time goes on ------------------------------------------------------------------------------


@dataclass
class Play:
    """Looks every ten seconds; who is to leave goes some looks later, and reports lag behind."""

    cluster: FakeCluster
    delays: list[int]
    past: ReclaimPast = field(default_factory=ReclaimPast)
    now: float = NOW
    going: dict[str, int] = field(default_factory=dict)
    left_at: dict[str, list[float]] = field(default_factory=dict)

    def run(self, looks: int) -> None:
        for at in range(looks):
            if at % 6 == 0:
                report(self.cluster, now=self.now, age=0.0)
            self._end_pods()
            outcome = run(
                self.cluster,
                PRESSED,
                self.past,
                moment=Moment(self.now),
                moving=dict.fromkeys(self.going, ""),
            )
            before = set(self.going)
            for one in outcome.reclaims:
                self.past.note(one, self.now)
                for pod in one.unit.pods:
                    whole = self.cluster.state.pods[pod.uid]
                    assert is_batch(whole), "only batch pods go"
                    assert self.needs(pod.node, before), "it goes without a cause"
                    self.going[pod.uid] = self.delays[len(self.left_at) % len(self.delays)]
            self.now += 10.0

    def needs(self, node: str, leaving: set[str]) -> bool:
        pods = [pod for pod in self.cluster.state.pods_on(node) if pod.uid not in leaving]
        used = sum(map(memory_of, pods))
        shapes = [dict(pod.shape.requests) for pod in pods]
        bound = {name: sum(shape.get(name, 0) for shape in shapes) for name in (CPU, MEMORY)}
        return used >= 65 * GI or bound[CPU] > 16000 or bound[MEMORY] > 40 * GI

    def _end_pods(self) -> None:
        for uid, looks in list(self.going.items()):
            self.going[uid] = looks - 1
            if looks <= 0:
                node = self.cluster.state.pods[uid].node
                self.left_at.setdefault(node, []).append(self.now)
                self.cluster.state.remove_pod(uid)
                del self.going[uid]


PRESSED = replace(SETTINGS, batch_reclaim=BatchReclaimRules(65.0, 30.0))


@settings(max_examples=examples(15))
@given(
    pods=st.lists(
        st.tuples(
            st.booleans(),
            st.sampled_from(["n0", "n1"]),
            st.integers(1, 20),
            st.integers(0, 6000),
            st.sampled_from([5000, 5500]),
        ),
        max_size=16,
    ),
    delays=st.lists(st.integers(0, 5), min_size=1, max_size=4),
)
def test_only_batch_pods_go_at_the_rate_and_no_more_than_needed(
    pods: list[tuple[bool, str, int, int, int]], delays: list[int]
) -> None:
    built = [
        replace(batch(f"p-{at}", node, gib, cpu), priority=priority)
        if is_low
        else prod(f"p-{at}", node, gib)
        for at, (is_low, node, gib, cpu, priority) in enumerate(pods)
    ]
    play = Play(make_cluster(*built), delays)
    play.run(90)
    for times in play.left_at.values():
        pauses = [after - before for before, after in pairwise(times)]
        assert all(pause >= 30.0 for pause in pauses), "two leave a node within 30 s"
    for node in ("n0", "n1"):
        left = [pod for pod in play.cluster.state.pods_on(node) if is_batch(pod)]
        assert not play.needs(node, set()) or not any(map(memory_of, left))
