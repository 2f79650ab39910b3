"""Units that take too long to plan: they are rolled back and wait, and others are placed."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import PodBuilder, make_node, make_pod
from tests.cluster import FakeCluster, make_cluster, make_unit, nodes_of, plan_in
from tests.device.test_plugin import gpu_cluster
from tests.support.laws import examples

from koord.core.engine import steps
from koord.core.engine.steps import Steps, TooManySteps, budget_of
from koord.core.model.constraints import PodSelector
from koord.core.model.device_names import GPU_CORE, GPU_MEMORY_RATIO
from koord.core.model.plan import Unplaced
from koord.core.model.reasons import TooExpensive
from koord.core.model.selectors import Requirement, SelectorOperator


def make_hostile(count: int, terms: int) -> list[PodBuilder]:
    """Make pods whose terms all differ, and all select all of them."""
    pods = [make_pod(f"h{at}") for at in range(count)]
    for at, pod in enumerate(pods):
        for term in range(terms):
            lacking = Requirement(f"k{at}-{term}", SelectorOperator.DOES_NOT_EXIST)
            pod.apart(PodSelector((lacking,), ("default",)), "host")
    return pods


def make_nodes(count: int) -> FakeCluster:
    return make_cluster().nodes(
        *(make_node(f"n{at}").gpu(8).label("host", f"n{at}") for at in range(count))
    )


def test_an_expensive_unit_is_refused_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PER_UNIT", 2_000_000)
    cluster = make_nodes(20)
    before = cluster.open_cycle().used
    hostile, plain = make_unit("a", make_hostile(10, 40)), make_unit("b", [make_pod("p").gpu(8)])
    cycle = cluster.open_cycle()
    outcome = cluster.plan(hostile, plain)
    (refusal,) = outcome.refusals
    assert isinstance(refusal.reason, TooExpensive)
    assert (refusal.reason.pods, refusal.reason.terms) == (10, 40)
    assert "10 pods with up to 40 rules about other pods" in refusal.reason.text()
    assert nodes_of(outcome) == {"p": "n0"}, "the others go on, on an untouched cluster"
    assert (cycle.used == before).all()


def test_the_same_unit_takes_the_same_steps() -> None:
    taken = set()
    for _ in range(2):
        cluster = make_nodes(20)
        cycle = cluster.open_cycle()
        assert plan_in(cycle, [make_unit("a", make_hostile(5, 10))]).placements
        taken.add(cycle.steps.taken)
    assert len(taken) == 1


def test_a_call_ends_after_its_steps_and_leaves_the_rest_undecided() -> None:
    cycle = make_nodes(20).open_cycle()
    cycle.steps.most = 1
    units = [make_unit(name, [make_pod(name)]) for name in "abc"]
    outcome = plan_in(cycle, units)
    assert [one.unit for one in outcome.placements] == ["a"], "at least one is decided"
    assert not outcome.refusals


def test_many_host_ports_end_a_call_between_units() -> None:
    """Ports cost steps, so that pods with very many leave the others their turn."""
    cluster, plain = make_nodes(20), make_unit("z", [make_pod("z")])
    every = []
    for at in range(40):
        pod = make_pod(f"p{at}")
        for port in range(256):
            pod.host_port(1000 + 256 * at + port)
        every.append(make_unit(f"u{at:02}", [pod]))
    cycle = cluster.open_cycle()
    cycle.steps.most = 10_000_000
    outcome = plan_in(cycle, [*every, plain])
    assert 1 < len(outcome.placements) < 40
    assert not outcome.refusals, "the rest is decided in the next cycle"


def test_a_flood_of_costly_units_does_not_delay_who_comes_later() -> None:
    """Whoever fills a cycle alone goes on after the others, as long as they are as important."""
    cluster = make_nodes(20)
    flood = [make_pod(f"evil/p{at}").gpu(1).created(at) for at in range(6)]
    cluster.pods(*flood)
    units = cluster.take()
    cluster.queue.put_back(units[3:])
    cluster.queue.yield_to_others({"evil": 90, "small": 10})
    late = make_pod("small/late").gpu(1).created(100)
    urgent = make_pod("evil/urgent").gpu(1).created(100).priority(5)
    cluster.pods(late, urgent)
    names = [unit.pods[0].name for unit in cluster.take()]
    assert names == ["urgent", "late", "p3", "p4", "p5"]


def test_pods_that_all_differ_end_their_unit_while_they_are_looked_at() -> None:
    """Each has to be compared with the terms of all: that alone may be more than the budget."""
    pods = make_hostile(300, 40)
    for at, pod in enumerate(pods):
        pod.labels(me=f"x{at}")
    cycle = make_nodes(20).open_cycle()
    (refusal,) = plan_in(cycle, [make_unit("a", pods)]).refusals
    assert isinstance(refusal.reason, TooExpensive)
    one = 12_000 * 9 * steps.PER_CALL
    assert cycle.steps.taken < refusal.reason.most + 2 * one


def test_steps_are_told_apart_by_namespace() -> None:
    cycle = make_nodes(20).open_cycle()
    pods = [pod for at, pod in enumerate(make_hostile(4, 10)) if pod.labels(n=str(at))]
    plan_in(cycle, [make_unit("a", pods), make_unit("b", [make_pod("other/p").gpu(1)])])
    assert cycle.steps.spent["default"] > 4 * cycle.steps.spent["other"] > 0


def test_budgets_grow_with_the_unit_and_the_cluster() -> None:
    assert budget_of(1000, 1) < budget_of(1000, 100) < budget_of(5000, 100)
    assert budget_of(10**6, 10**6) == steps.MOST_PER_UNIT
    counter = Steps()
    counter.limit = 10
    counter.check()
    counter.take(11)
    with pytest.raises(TooManySteps):
        counter.check()


def test_an_expensive_unit_is_tried_again_after_growing_pauses() -> None:
    cluster = make_nodes(1)
    cluster.pods(make_pod("a").gpu(8), make_pod("b").gpu(1))
    (a, _) = cluster.take()
    reason = TooExpensive("default/a", 1, 0, 2, 1)
    dues = []
    now = 0.0
    for _ in range(8):
        cluster.queue.refuse(a, Unplaced(a.key, a.pods, reason))
        cluster.queue.postpone(a, reason.steps, now)
        cluster.nodes(make_node("more").gpu(8 + len(dues)))
        assert a.key in cluster.absorb().blocked, "more room does not help"
        cluster.queue.wake_all()
        due = cluster.queue.next_due()
        assert due is not None
        assert not cluster.take(due - 1)
        assert cluster.take(due) == [a]
        dues.append(due - now)
        now = due
    assert dues[:3] == [10, 20, 40]
    assert dues[-1] == 300


def test_an_expensive_unit_does_not_get_more_under_other_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that a namespace wastes is bounded, and does not delay its ordinary pods, nor others'."""
    monkeypatch.setattr(steps, "PER_UNIT", 2_000_000)
    monkeypatch.setattr(steps, "PER_ROW", 0)
    monkeypatch.setattr(steps, "PER_NODE", 0)
    monkeypatch.setattr(steps, "LEAST_PER_ROW", 10)
    cluster = make_nodes(20)
    least = steps.budget_of(64, 10, 10**9)
    attempts = []
    for at in range(10):
        cycle = cluster.open_cycle()
        cycle.steps.wasted = cluster.queue.wasted(0.0)
        unit = make_unit(f"a{at}", make_hostile(10, 40))
        ordinary = [make_pod(f"{name}/p").gpu(1) for name in ("default", "other")]
        units = [unit, *(make_unit(pod.build().key, [pod]) for pod in ordinary)]
        outcome = plan_in(cycle, units)
        assert len(outcome.placements) == 2
        (refusal,) = outcome.refusals
        assert isinstance(refusal.reason, TooExpensive)
        attempts.append(refusal.reason)
        cluster.queue.postpone(unit, refusal.reason.steps, 0.0)
    assert attempts[0].most == 2_000_000
    assert {one.most for one in attempts[1:]} == {least}
    assert "wasted" in attempts[1].text()
    assert set(cluster.queue.wasted(0.0)) == {"default"}
    assert cluster.queue.wasted(300.0) == {}, "it is forgiven"


@pytest.mark.parametrize("preferred", [True, False])
def test_terms_of_pods_on_nodes_do_not_use_up_the_budget_of_others(
    monkeypatch: pytest.MonkeyPatch, *, preferred: bool
) -> None:
    monkeypatch.setattr(steps, "PER_UNIT", 200_000)
    monkeypatch.setattr(steps, "PER_ROW", 0)
    monkeypatch.setattr(steps, "PER_NODE", 0)
    cluster = make_nodes(4)
    for at in range(100):
        lacking = Requirement(f"k{at}", SelectorOperator.DOES_NOT_EXIST)
        terms = PodSelector((lacking,), (), ())
        pod = make_pod(f"evil/h{at}").running("n0")
        cluster.pods(pod.prefers(-1, terms, "host") if preferred else pod.apart(terms, "host"))
    cycle = cluster.open_cycle()
    outcome = plan_in(cycle, [make_unit("a", [make_pod("p")])])
    assert nodes_of(outcome) == {"p": "n1"}
    assert cycle.steps.taken > 200_000


@pytest.mark.parametrize("namespaces", [("default",), ()])
def test_many_terms_of_others_are_summed_up(namespaces: tuple[str, ...]) -> None:
    """More than a few terms take another way, which must decide the same."""
    for count in (1, 40):
        cluster = make_nodes(4)
        for at in range(count):
            lacking = Requirement(f"k{at}", SelectorOperator.DOES_NOT_EXIST)
            by_labels = None if namespaces else ()
            selector = PodSelector((lacking,), namespaces, by_labels)
            cluster.pods(make_pod(f"h{at}").apart(selector, "host").running(f"n{at % 2}"))
        assert cluster.feasible(make_pod("p")) == ("n1 n2 n3" if count == 1 else "n2 n3")


def make_spread(count: int) -> list[PodBuilder]:
    by_label = PodSelector((Requirement("a", SelectorOperator.DOES_NOT_EXIST),), ("default",))
    return [make_pod(f"s{at}").gpu(1 + at % 2).spread(by_label, "host") for at in range(count)]


def make_shared(count: int) -> list[PodBuilder]:
    return [
        make_pod(f"d{at}").requests(**{GPU_CORE: 10 + at, GPU_MEMORY_RATIO: 10 + at})
        for at in range(count)
    ]


def make_ports(count: int, ports: int) -> list[PodBuilder]:
    pods = [make_pod(f"p{at}") for at in range(count)]
    for at, pod in enumerate(pods):
        for port in range(ports):
            pod.host_port(1000 + at * ports + port)
    return pods


@pytest.mark.parametrize(
    ("make", "pods"),
    [
        (make_nodes, make_hostile(10, 40)),
        (make_nodes, make_ports(6, 100)),
        (make_nodes, make_spread(12)),
        (gpu_cluster, make_shared(12)),
    ],
    ids=["terms", "ports", "spread", "devices"],
)
@given(most=st.integers(1, 30_000_000))
@settings(max_examples=examples(20))
def test_no_unit_takes_more_than_its_budget(
    make: Callable[[int], FakeCluster], pods: list[PodBuilder], most: int
) -> None:
    """Work is counted before it is done, and that of a rollback with what it takes back."""
    beyond = []

    def end(self: Steps) -> None:
        beyond.append(self.taken - self.limit)
        self.limit = float("inf")

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PER_UNIT", most), ("PER_ROW", 0), ("PER_NODE", 0)):
            patch.setattr(steps, name, value)
        patch.setattr(steps, "LEAST_PER_ROW", 0)
        patch.setattr(Steps, "end", end)
        cycle = make(20).open_cycle()
        outcome = plan_in(cycle, [make_unit("a", pods)])
    assert max(beyond) <= 0
    assert outcome.placements or isinstance(outcome.refusals[0].reason, TooExpensive)
