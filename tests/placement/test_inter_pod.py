"""Inter-pod rules on random clusters, compared with a naive implementation.

The reference below goes node by node and pod by pod, as the rules are written down; nothing of it
is shared with the planner.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import intern_shape, make_node
from tests.cluster import SCORING, FakeCluster, make_cluster
from tests.objects import upsert_namespace
from tests.support.laws import examples

from koord.core.engine.allocator import Allocator
from koord.core.model.constraints import (
    AffinityTerm,
    PodConstraints,
    PodLabels,
    PodSelector,
    SpreadConstraint,
    WeightedTerm,
)
from koord.core.model.pods import Handling, Pod, PodPhase, PodShape
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm, is_selected

NAMESPACES = {"one": {"team": "x"}, "two": {"team": "y"}}
KEYS = ("zone", "rack")
NODES = 5

values = st.sampled_from("12")
labels = st.dictionaries(st.sampled_from(("app", "tier")), values, min_size=1)
requirements = st.builds(
    Requirement,
    st.sampled_from(("app", "tier")),
    st.sampled_from(
        [
            SelectorOperator.IN,
            SelectorOperator.NOT_IN,
            SelectorOperator.EXISTS,
            SelectorOperator.DOES_NOT_EXIST,
        ]
    ),
    st.lists(values, min_size=1, max_size=2).map(tuple),
)
by_app = values.map(lambda value: (Requirement("app", SelectorOperator.IN, (value,)),))
selectors = by_app | st.none() | st.lists(requirements, max_size=2).map(tuple)
by_team = (
    st.none()
    | st.just(())
    | values.map(
        lambda value: (Requirement("team", SelectorOperator.IN, ("x" if value == "1" else "y",)),)
    )
)
pod_selectors = st.builds(
    PodSelector,
    selectors,
    st.lists(st.sampled_from(["one", "two"]), max_size=2).map(tuple),
    by_team,
)
keys = st.sampled_from(KEYS)
terms = st.builds(AffinityTerm, pod_selectors, keys)
few_terms = st.lists(terms, max_size=2).map(tuple)
spreads = st.builds(
    SpreadConstraint,
    st.builds(PodSelector, selectors, st.just(("one",))),
    keys,
    st.integers(1, 2),
    st.integers(1, 3),
    st.booleans(),
)
constraints = st.builds(
    PodConstraints,
    few_terms,
    few_terms,
    st.lists(st.builds(WeightedTerm, terms, st.sampled_from([-5, 5])), max_size=1).map(tuple),
    st.lists(spreads, max_size=2).map(tuple),
    st.lists(spreads, max_size=1).map(tuple),
)


@dataclass(frozen=True)
class Resident:
    node: int
    namespace: str
    labels: dict[str, str]
    constraints: PodConstraints
    is_leaving: bool = False


resident = st.builds(
    Resident,
    st.integers(0, NODES),  # one more than there are: its node is not known
    st.sampled_from(list(NAMESPACES)),
    labels,
    constraints,
    st.booleans(),
)
residents = st.lists(resident, max_size=6)
both_keys = st.fixed_dictionaries(dict.fromkeys(KEYS, values))
node_labels = st.lists(
    both_keys | both_keys | st.dictionaries(keys, values), min_size=NODES, max_size=NODES
)
node_choices = st.none() | values.map(
    lambda value: (SelectorTerm((Requirement("rack", SelectorOperator.NOT_IN, (value,)),)),)
)


def make_state(nodes: list[dict[str, str]], pods: list[Resident]) -> FakeCluster:
    cluster = make_cluster()
    for namespace, found in NAMESPACES.items():
        upsert_namespace(cluster.state, namespace, found)
    for at, one in enumerate(pods):
        cluster.pods(make_resident(at, one))
    for at, found in enumerate(nodes):
        builder = make_node(f"n{at}").pods(3)
        for key, value in found.items():
            builder.label(key, value)
        cluster.nodes(builder)
    return cluster


def make_resident(at: int, one: Resident) -> Pod:
    return Pod(
        uid=f"r{at}",
        namespace=one.namespace,
        name=f"r{at}",
        shape=intern_shape(PodShape((("pods", 1),), constraints=one.constraints)),
        profile=PodLabels(one.namespace, one.labels),
        node=f"n{one.node}",
        phase=PodPhase.RUNNING,
        is_terminating=one.is_leaving,
    )


def make_subject(
    found: dict[str, str], asks: PodConstraints, choice: tuple[SelectorTerm, ...] | None
) -> Pod:
    shape = PodShape((("pods", 1),), terms=choice, constraints=asks)
    return Pod(
        uid="p",
        namespace="one",
        name="p",
        shape=intern_shape(shape),
        profile=PodLabels("one", found),
        handling=Handling.BIND,
    )


def means(pods: PodSelector, namespace: str, found: dict[str, str]) -> bool:
    named = namespace in pods.namespaces
    if not named and pods.namespace_selector is not None:
        named = is_selected(NAMESPACES[namespace], pods.namespace_selector)
    return named and is_selected(found, pods.selector)


class Reference:
    """A naive implementation of the rules."""

    def __init__(self, nodes: list[dict[str, str]], pods: list[Resident], subject: Pod) -> None:
        self.nodes = nodes
        self.pods = [pod for pod in pods if pod.node < len(nodes)]
        self.labels = dict(subject.profile.labels)
        self.asks = subject.shape.constraints or PodConstraints()
        self.choice = subject.shape.terms

    def admits(self, node: int) -> bool:
        return (
            sum(pod.node == node for pod in self.pods) < 3
            and self.is_chosen(node)
            and all(self.is_even(node, one) for one in self.asks.spread)
            and self.is_near(node)
            and not any(self.is_beside(node, term) for term in self.asks.anti_affinity)
            and not any(self.is_repelled(node, pod) for pod in self.pods)
        )

    def is_chosen(self, node: int) -> bool:
        if self.choice is None:
            return True
        return any(is_selected(self.nodes[node], term.expressions) for term in self.choice)

    def is_same_domain(self, key: str, node: int, other: int) -> bool:
        value = self.nodes[node].get(key)
        return value is not None and value == self.nodes[other].get(key)

    def is_beside(self, node: int, term: AffinityTerm) -> bool:
        return any(
            means(term.pods, pod.namespace, pod.labels)
            and self.is_same_domain(term.topology_key, node, pod.node)
            for pod in self.pods
        )

    def is_repelled(self, node: int, pod: Resident) -> bool:
        return any(
            means(term.pods, "one", self.labels)
            and self.is_same_domain(term.topology_key, node, pod.node)
            for term in pod.constraints.anti_affinity
        )

    def is_near(self, node: int) -> bool:
        wanted = self.asks.affinity
        if not all(term.topology_key in self.nodes[node] for term in wanted):
            return False
        found = [
            pod
            for pod in self.pods
            if all(means(term.pods, pod.namespace, pod.labels) for term in wanted)
        ]
        if all(
            any(self.is_same_domain(term.topology_key, node, pod.node) for pod in found)
            for term in wanted
        ):
            return True
        is_alone = not any(
            term.topology_key in self.nodes[pod.node] for pod in found for term in wanted
        )
        return is_alone and all(means(term.pods, "one", self.labels) for term in wanted)

    def is_even(self, node: int, constraint: SpreadConstraint) -> bool:
        key = constraint.topology_key
        if key not in self.nodes[node]:
            return False
        counting = [
            at
            for at, found in enumerate(self.nodes)
            if all(one.topology_key in found for one in self.asks.spread)
            and (self.is_chosen(at) or not constraint.honors_affinity)
        ]
        numbers = {self.nodes[at][key]: 0 for at in counting}
        for pod in self.pods:
            is_meant = means(constraint.pods, pod.namespace, pod.labels)
            if pod.node in counting and is_meant and constraint.pods.selector != ():
                numbers[self.nodes[pod.node][key]] += not pod.is_leaving
        least = min(numbers.values(), default=0)
        if len(numbers) < constraint.min_domains:
            least = 0
        here = numbers.get(self.nodes[node][key], 0)
        return here + means(constraint.pods, "one", self.labels) - least <= constraint.max_skew


subjects = st.tuples(labels, constraints, node_choices)


@settings(max_examples=examples(30), deadline=None)
@given(node_labels, residents, subjects)
def test_room_equals_a_naive_implementation_of_the_rules(
    nodes: list[dict[str, str]],
    pods: list[Resident],
    drawn: tuple[dict[str, str], PodConstraints, tuple[SelectorTerm, ...] | None],
) -> None:
    subject = make_subject(*drawn)
    cluster = make_state(nodes, pods)
    cycle = cluster.open_cycle()
    room = cycle.room(cycle.shape_of(subject))
    reference = Reference(nodes, pods, subject)
    found = {at: bool(room[cluster.state.table.row_of[f"n{at}"]]) for at in range(NODES)}
    assert found == {at: reference.admits(at) for at in range(NODES)}


@settings(max_examples=examples(20), deadline=None)
@given(node_labels, residents, subjects, subjects, st.integers(1, 6))
def test_incremental_results_equal_those_of_a_fresh_cycle(
    nodes: list[dict[str, str]],
    pods: list[Resident],
    first: tuple[dict[str, str], PodConstraints, tuple[SelectorTerm, ...] | None],
    second: tuple[dict[str, str], PodConstraints, tuple[SelectorTerm, ...] | None],
    count: int,
) -> None:
    cluster = make_state(nodes, pods)
    cycle = cluster.open_cycle()
    both = [make_subject(*first), make_subject(*second)]
    cycle.expect(both)
    shapes = [cycle.shape_of(subject) for subject in both]
    before = [cycle.room(shape).tolist() for shape in shapes]
    mark = cycle.checkpoint()
    now = list(pods)
    for step in range(count):
        subject, shape = both[step % 2], shapes[step % 2]
        for share in Allocator(cycle, SCORING).fill(shape, 1):
            node = int(cluster.state.table.node_at(share.row).name[1:])
            labels_of = dict(subject.profile.labels)
            now.append(Resident(node, "one", labels_of, subject.shape.constraints))  # type: ignore[arg-type]
        fresh = make_state(nodes, now)
        other = fresh.open_cycle()
        for one, here in zip(both, shapes, strict=True):
            rooms = (cycle.room(here), other.room(other.shape_of(one)))
            assert [
                bool(rooms[0][cluster.state.table.row_of[f"n{at}"]]) for at in range(NODES)
            ] == [bool(rooms[1][fresh.state.table.row_of[f"n{at}"]]) for at in range(NODES)]
    cycle.rollback(mark)
    assert [cycle.room(shape).tolist() for shape in shapes] == before


@settings(max_examples=examples(25), deadline=None)
@given(node_labels, residents, subjects, st.integers(1, 6))
def test_bulk_placement_equals_placing_pods_one_by_one(
    nodes: list[dict[str, str]],
    pods: list[Resident],
    drawn: tuple[dict[str, str], PodConstraints, tuple[SelectorTerm, ...] | None],
    count: int,
) -> None:
    subject = make_subject(*drawn)
    cluster = make_state(nodes, pods)
    at_once, one_by_one = cluster.open_cycle(), cluster.open_cycle()
    shares = Allocator(at_once, SCORING).fill(at_once.shape_of(subject), count)
    singles: dict[int, int] = {}
    for _ in range(count):
        for share in Allocator(one_by_one, SCORING).fill(one_by_one.shape_of(subject), 1):
            singles[share.row] = singles.get(share.row, 0) + 1
    assert sum(share.count for share in shares) == sum(singles.values())


events = st.lists(st.tuples(st.integers(0, 3), st.none() | resident), max_size=8)


@settings(max_examples=examples(30), deadline=None)
@given(node_labels, events, st.lists(st.integers(0, NODES - 1), max_size=4), subjects)
def test_changed_state_equals_a_state_built_from_scratch(
    nodes: list[dict[str, str]],
    changes: list[tuple[int, Resident | None]],
    gone: list[int],
    drawn: tuple[dict[str, str], PodConstraints, tuple[SelectorTerm, ...] | None],
) -> None:
    cluster = make_state(nodes, [])
    left: dict[int, Resident] = {}
    subject = make_subject(*drawn)
    for step, (at, resident) in enumerate(changes):
        if resident is None:
            cluster.state.remove_pod(f"r{at}")
            left.pop(at, None)
        else:
            cluster.pods(make_resident(at, resident))
            left[at] = resident
        if step < len(gone):
            cluster.state.remove_node(f"n{gone[step]}")
            cycle = cluster.open_cycle()
            cycle.room(cycle.shape_of(subject))
    for at in set(gone[: len(changes)]):
        builder = make_node(f"n{at}").pods(3)
        for key, value in nodes[at].items():
            builder.label(key, value)
        cluster.nodes(builder)
    fresh = make_state(nodes, list(left.values()))
    rooms = []
    for one in (cluster, fresh):
        cycle = one.open_cycle()
        room = cycle.room(cycle.shape_of(subject))
        rooms.append([int(room[one.state.table.row_of[f"n{at}"]]) for at in range(NODES)])
    assert rooms[0] == rooms[1]
