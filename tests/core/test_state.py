"""The state: used amounts always follow from observed and assumed pods."""

from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.builders import make_node, make_pod, make_pod_group, select_pods
from tests.cluster import make_cluster, open_cycle
from tests.objects import remove_pod_group, upsert_pod_group
from tests.support.laws import examples

from koord.core.engine.state import ClusterState
from koord.core.model.pods import Pod, PodPhase, RecordedPlan
from koord.core.model.units import AMOUNT_LIMIT

NODES = ("n0", "n1", "n2")
NAMES = ("a", "b", "c", "d")

nodes_drawn = st.sampled_from(NODES)
names_drawn = st.sampled_from(NAMES)


@st.composite
def pods_drawn(draw: st.DrawFn) -> Pod:
    name = draw(names_drawn)
    builder = make_pod(name).uid(f"{name}-{draw(st.integers(0, 1))}")
    builder = builder.gpu(draw(st.integers(0, 2))).requests(cpu=draw(st.integers(0, 3)) * 100)
    if draw(st.booleans()):
        builder = builder.gang("default/g")
    if draw(st.booleans()):
        builder = builder.host_port(draw(st.sampled_from((80, 81))))
    pod = builder.build()
    match draw(st.sampled_from(("waiting", "bound", "ended", "pinned", "daemon", "terminating"))):
        case "bound":
            return replace(pod, node=draw(nodes_drawn), is_gated=False)
        case "ended":
            return replace(pod, node=draw(nodes_drawn), is_gated=False, phase=PodPhase.SUCCEEDED)
        case "pinned":
            recorded = RecordedPlan(draw(nodes_drawn), "plan", "", 1)
            return replace(pod, recorded=recorded, pinned=True, is_gated=False)
        case "daemon":
            return replace(pod, reserved_node=draw(nodes_drawn), is_gated=False)
        case "terminating":
            return replace(pod, node=draw(nodes_drawn), is_gated=False, is_terminating=True)
        case _:
            return pod


class StateMachine(RuleBasedStateMachine):
    """Applies random changes and recomputes everything from scratch after each."""

    def __init__(self) -> None:
        super().__init__()
        self.state = make_cluster().state
        self.feed = self.state.feed()
        self.observed: dict[str, Pod] = {}
        self.assumed: dict[str, str] = {}
        self.fading: set[str] = set()

    @rule(pod=pods_drawn())
    def observe(self, pod: Pod) -> None:
        self.observed = {
            uid: other for uid, other in self.observed.items() if other.key != pod.key
        } | {pod.uid: pod}
        self.assumed = {
            uid: node
            for uid, node in self.assumed.items()
            if uid in self.observed and not (uid == pod.uid and self.is_over(pod))
        }
        self.fading &= self.assumed.keys()
        self.state.upsert_pod(pod)

    def is_over(self, pod: Pod) -> bool:
        """Whether what a pod shows ends an assumption."""
        fades = pod.uid in self.fading and not pod.is_gated
        return bool(pod.node) or not pod.is_alive or fades

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.observed:
            uid = data.draw(st.sampled_from(sorted(self.observed)))
            del self.observed[uid]
            self.assumed.pop(uid, None)
            self.fading.discard(uid)
            self.state.remove_pod(uid)

    @rule(data=st.data(), node=nodes_drawn)
    def assume(self, data: st.DataObject, node: str) -> None:
        waiting = sorted(uid for uid, pod in self.observed.items() if pod.is_waiting)
        if waiting:
            uid = data.draw(st.sampled_from(waiting))
            self.assumed[uid] = node
            self.fading.discard(uid)
            self.state.assume(uid, node)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if self.assumed:
            uid = data.draw(st.sampled_from(sorted(self.assumed)))
            del self.assumed[uid]
            self.fading.discard(uid)
            self.state.forget(uid)

    @rule(data=st.data())
    def forget_once_released(self, data: st.DataObject) -> None:
        if self.assumed:
            uid = data.draw(st.sampled_from(sorted(self.assumed)))
            if self.observed[uid].is_gated:
                self.fading.add(uid)
            else:
                del self.assumed[uid]
                self.fading.discard(uid)
            self.state.forget_once_released(uid)

    @rule(name=nodes_drawn, gpus=st.integers(0, 4))
    def add_node(self, name: str, gpus: int) -> None:
        self.state.upsert_node(make_node(name).gpu(gpus).build())

    @rule(name=nodes_drawn)
    def remove_node(self, name: str) -> None:
        self.state.remove_node(name)

    @rule(present=st.booleans())
    def change_pod_group(self, *, present: bool) -> None:
        if present:
            upsert_pod_group(self.state, make_pod_group("default/g", 2).build())
        else:
            remove_pod_group(self.state, "default/g")

    @invariant()
    def used_is_the_sum_of_what_is_there(self) -> None:
        fresh = make_cluster().state
        for name in self.state.table.row_of:
            node = self.state.table.node_at(self.state.table.row_of[name])
            fresh.upsert_node(node)
        for pod in self.observed.values():
            fresh.upsert_pod(pod)
        for uid, node in self.assumed.items():
            fresh.assume(uid, node)
        for name, row in fresh.table.live_rows():
            other = self.state.table.row_of[name]
            for resource, column in fresh.table.columns.items():
                mine = self.state.table.used[self.state.table.columns[resource], other]
                assert mine == fresh.table.used[column, row], (name, resource)
            for probe in (80, 81):
                shape = make_pod("probe").host_port(probe).build().shape
                assert np.array_equal(
                    open_cycle(self.state).room(shape)[other],
                    open_cycle(fresh).room(shape)[row],
                )
        assert self.state.assumed == self.assumed
        assert self.state.pods == fresh.pods

    @invariant()
    def book_holds_exactly_the_members(self) -> None:
        members = {uid for uid, pod in self.observed.items() if pod.gang is not None}
        assert set(self.state.gangs.members("default/g")) == members


StateMachine.TestCase.settings = settings(
    max_examples=examples(15), stateful_step_count=30, deadline=None
)
TestState = StateMachine.TestCase


def test_every_reader_sees_every_change_once() -> None:
    state = make_cluster().state
    early = state.feed()
    state.upsert_pod(make_pod("a").build())
    late = state.feed()
    assert early.drain().singles == late.drain().singles == {"uid-default-a"}
    assert not early.drain()
    state.upsert_pod(make_pod("b").gang("default/g").build())
    state.upsert_node(make_node("n").build())
    assert (early.drain().gangs, late.drain().freed) == ({"default/g"}, {"n"})


def test_stale_waiting_condition_of_a_pod_is_requeued() -> None:
    state = make_cluster().state
    single, member = make_pod("a"), make_pod("b").gang("default/g")
    for pod in (single, member):
        state.upsert_pod(pod.running("n").build())
    feed = state.feed()
    feed.drain()
    for pod in (single, member):
        state.upsert_pod(pod.wait_reason("MissingMembers").build())
    changes = feed.drain()
    assert (changes.singles, changes.gangs) == ({"uid-default-a"}, {"default/g"})
    said = [state.pods["uid-default-a"], state.gangs.members("default/g")["uid-default-b"]]
    assert {pod.wait_reason for pod in said} == {"MissingMembers"}


def test_recreated_pod_replaces_the_old_one_of_its_name() -> None:
    state = make_cluster().state
    state.upsert_node(make_node("n").gpu(8).build())
    state.upsert_pod(make_pod("a").uid("1").gpu(8).running("n").build())
    state.upsert_pod(make_pod("a").uid("2").gpu(8).build())
    assert set(state.pods) == {"2"}
    assert open_cycle(state).room(state.pods["2"].shape)[state.table.row_of["n"]] == 1
    state.remove_pod("1")
    assert set(state.pods) == {"2"}


def test_state_without_readers_drops_changes() -> None:
    state = make_cluster().state
    for at in range(5):
        pod = make_pod(f"p{at}").build()
        state.upsert_pod(pod)
        state.remove_pod(pod.uid)
        assert not state.has_readers
        state.publish()
    assert not state.feed().drain().singles
    assert state.has_readers


def test_huge_requests_of_many_pods_do_not_overflow() -> None:
    """Users may set nodeName and request any amount of memory."""
    state = make_cluster().state
    state.upsert_node(make_node("n0").build())
    for at in range(2000):
        state.upsert_pod(make_pod(f"p{at}").requests(memory=AMOUNT_LIMIT).running("n0").build())
    assert state.table.used[state.table.column("memory"), state.table.row_of["n0"]] > 0
    assert not open_cycle(state).room(make_pod("q").requests(memory=1).build().shape).any()


def test_names_of_resources_that_no_node_has_cost_no_column() -> None:
    """Users may request any name, on waiting pods and on pods with a ``nodeName`` of their own."""
    state = make_cluster(4).state
    columns = len(state.table.used)
    for at in range(200):
        waiting = make_pod(f"p{at}").resource(f"example.com/r{at}", 1)
        state.upsert_pod(waiting.build())
        state.upsert_pod(make_pod(f"r{at}").resource(f"example.com/u{at}", 1).running("n0").build())
        assert not open_cycle(state).room(waiting.build().shape).any()
    assert len(state.table.used) == columns


def test_the_first_node_with_a_resource_opens_it_to_pods_seen_before() -> None:
    cluster = make_cluster(2)
    asking = [make_pod(f"p{at}").resource("example.com/fpga", 2) for at in range(3)]
    taken = make_pod("taken").resource("example.com/fpga", 3).running("n0")
    cluster.pods(taken, *asking)
    assert cluster.step() == []
    assert "All 2 nodes lack 2 free example.com/fpga" in cluster.reasons()["p0"].text()
    assert cluster.feasible(asking[0]) == ""
    cluster.nodes(make_node("n0").resource("example.com/fpga", 8))
    assert cluster.copies(asking[0]) == {"n0": 2, "n1": 0}, "8, of which 3 are used"
    assert len(cluster.step()) == 2, "blocked units are planned again"
    cluster.delete_pods("taken")
    assert cluster.copies(asking[0]) == {"n0": 2, "n1": 0}, "8, of which 4 are used"


def test_unbound_daemon_pod_is_invisible_to_inter_pod_rules() -> None:
    web = select_pods(app="web")
    near = make_pod("p").near(web, key="kubernetes.io/hostname").build()
    daemon = make_pod("daemon").labels(app="web").reserved_node("n")
    state = make_cluster().state
    state.upsert_pod(daemon.build())
    state.upsert_node(make_node("n").label("kubernetes.io/hostname", "n").build())
    assert not room_for(state, near)
    state.upsert_pod(daemon.running("n").build())
    assert room_for(state, near)


def room_for(state: ClusterState, pod: Pod) -> bool:
    cycle = open_cycle(state)
    return bool(cycle.room(cycle.shape_of(pod)).any())
