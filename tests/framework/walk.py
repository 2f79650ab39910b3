"""A random walk through one cycle in which every session takes part, with its invariants.

Steps place, reserve, remove, restore, charge, checkpoint and roll back, in any order. After a
rollback every session is byte for byte what it was; removing and restoring changes nothing; and
what sessions have cached is what a fresh cycle with the same pods would answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tests.builders import make_node, make_pod, make_quota, select_pods
from tests.cluster import FakeCluster, make_cluster
from tests.framework.toys import Booking, BookingSession, Lanes, LanesSession
from tests.objects import upsert_claim, upsert_volume

from koord.core.engine.cycle import Cycle, Place
from koord.core.model.plan import Demand, Unit, Unplaced
from koord.core.plugins.host_ports import HostPortsSession
from koord.core.plugins.inter_pod import InterPodSession
from koord.core.plugins.volumes import Volume, VolumeClaim, VolumesSession
from koord.core.quota.session import QuotaSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from koord.core.engine.cycle import Removed
    from koord.core.model.pods import Pod

NODES = 6
WEB, DB = select_pods(app="web"), select_pods(app="db")
KINDS = 9


def make_kind(name: str, kind: int) -> Any:
    """Make a pod that concerns one domain or more, by number."""
    pod = make_pod(name).requests(cpu=500).quota(("a", "b", "")[kind % 3])
    makers = {
        1: lambda: pod.host_port(8080),
        2: lambda: pod.labels(app="web").apart(WEB),
        3: lambda: pod.labels(app="db").near(WEB, "zone"),
        4: lambda: pod.labels(app="web").spread(WEB, "zone"),
        5: lambda: pod.labels(lane="yes"),
        6: lambda: pod.labels(booking="yes").requests(cpu=3000),
        7: lambda: pod.claims("data"),
        8: lambda: pod.labels(lane="yes", app="db").host_port(9090),
    }
    return makers.get(kind, lambda: pod)()


def make_walk_cluster() -> FakeCluster:
    """Fill a cluster: six nodes in three zones, a running pod of every kind, two quotas."""
    taken = {"uid-default-before-5": ("n5", 1), "uid-default-before-8": ("n2", 0)}
    cluster = make_cluster(more_plugins=[Lanes(3, taken), Booking(["n0", "n3"], 4000)])
    for at in range(NODES):
        cluster.nodes(make_node(f"n{at}").cpu(12_000).pods(12).label("zone", f"z{at % 3}"))
    cluster.quotas(*(make_quota(name, namespace="q", max={"cpu": 40_000}) for name in "ab"))
    upsert_volume(cluster.state, Volume("v"))
    upsert_claim(cluster.state, VolumeClaim("default/data", "v", is_bound=True, is_exclusive=True))
    for kind in range(KINDS):
        if kind != 7:
            cluster.pods(make_kind(f"before-{kind}", kind).running(f"n{kind % NODES}"))
    return cluster


class Walk:
    """One walk; ``choose(n)`` returns a number below ``n``."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self.choose = choose
        self.cluster = make_walk_cluster()
        self.state = self.cluster.state
        self.waiting = [make_kind(f"w-{at}", at % KINDS).build() for at in range(2 * KINDS)]
        self.before = list(self.state.pods.values())
        self.cycle = self.open()
        self.shapes = [self.cycle.shape_of(pod) for pod in (*self.waiting, *self.before)]
        self.placed: dict[str, tuple[Pod, Place]] = {}
        self.gone: list[Pod] = []
        self.marks: list[tuple[Any, ...]] = []

    def open(self) -> Cycle:
        cycle = self.cluster.open_cycle()
        cycle.expect(self.waiting)
        for pod in (*self.waiting, *self.before):
            cycle.room(cycle.shape_of(pod))  # so that every cache is warm from the start
        return cycle

    def digest(self) -> dict[str, Any]:
        pods = (*self.waiting, *self.before)
        places = {pod.uid: self.cycle.place_of(pod) for pod in pods}
        rows = {uid: place and place.row for uid, place in places.items()}
        return {**digest(self.cycle), "rows": rows}

    def step(self) -> None:
        """Take one random step, and check what must hold after it."""
        steps = (self.place, self.place, self.remove, self.charge, self.admit, self.mark, self.back)
        steps[self.choose(len(steps))]()

    def place(self) -> None:
        """Place a waiting pod where there is room, if there is."""
        pod = self.waiting[self.choose(len(self.waiting))]
        if pod.uid in self.placed:
            return
        shape, cycle = self.cycle.shape_of(pod), self.cycle
        rows = np.flatnonzero(cycle.bounds(shape, np.arange(len(cycle.table.nodes))))
        if rows.size:
            before = self.digest()
            place = cycle.reserve(pod, shape, int(rows[self.choose(rows.size)]))
            if isinstance(place, Place):
                self.placed[pod.uid] = (pod, place)
            else:
                assert self.digest() == before, "a failed reservation leaves something behind"

    def remove(self) -> None:
        """Remove pods placed in this cycle or before; restore them or not."""
        pods = [pod for pod, _ in self.placed.values()]
        pods += [pod for pod in self.before if pod not in self.gone]
        chosen = [pod for pod in pods if not self.choose(4)]
        before = self.digest()
        removed = self.cycle.remove(chosen)
        assert {pod.uid for pod, _, _ in removed.pods} == {pod.uid for pod in chosen}
        if self.choose(2):
            self.restore(removed, before)
            return
        self.gone += [pod for pod in chosen if pod.uid not in self.placed]
        for pod in chosen:
            self.placed.pop(pod.uid, None)

    def restore(self, removed: Removed, before: dict[str, Any]) -> None:
        assert self.cycle.restore(removed)
        assert self.digest() == before, "restoring is not the inverse of removing"

    def charge(self) -> None:
        """Charge an amount, and give it back by a rollback."""
        before, mark = self.digest(), self.cycle.checkpoint()
        row, column = self.choose(NODES), self.cycle.table.column("memory")
        self.cycle.charge(row, column, self.choose(1000))
        self.cycle.rollback(mark)
        assert self.digest() == before

    def admit(self) -> None:
        """Have quotas admit a unit, and take that back."""
        before, mark = self.digest(), self.cycle.checkpoint()
        pods = tuple(pod for pod in self.waiting if pod.uid not in self.placed)[:4]
        if pods:
            unit = Unit("u", (Demand("", pods, self.choose(len(pods) + 1)),))
            admission = self.cycle.session(QuotaSession).pre_filter(unit)
            if not isinstance(admission, Unplaced):
                self.cycle.settle(admission.unit, admission.unit.pods[: self.choose(3)])
        self.cycle.rollback(mark)
        assert self.digest() == before

    def mark(self) -> None:
        kept = (dict(self.placed), list(self.gone))
        self.marks.append((self.cycle.checkpoint(), self.digest(), *kept))

    def back(self) -> None:
        """Roll back to a mark: every session is what it was then."""
        if not self.marks:
            return
        at = self.choose(len(self.marks))
        mark, before, self.placed, self.gone = self.marks[at]
        del self.marks[at:]
        self.cycle.rollback(mark)
        assert self.digest() == before, "a rollback forgot something"

    def check_caches(self) -> None:
        """Check that the cycle answers as a fresh one in which the same was done."""
        fresh = self.open()
        fresh.remove(self.gone)
        for pod, place in self.placed.values():
            fresh.place(fresh.shape_of(pod), place.row)
        assert self._answers(self.cycle, skip=True) == self._answers(fresh, skip=True)
        every = np.arange(len(self.cycle.table.nodes))
        for shape in self.shapes:
            whole = self.cycle.bounds(shape, every)
            assert whole.tolist() == [
                int(self.cycle.bounds(shape, every[i : i + 1])[0]) for i in every
            ]

    def _answers(self, cycle: Cycle, *, skip: bool) -> list[list[int]]:
        """Return the limits of every rule but those of the toys, which reserve exactly."""
        return [
            limits.tolist()
            for pod in (*self.waiting, *self.before)
            for shape in (cycle.shape_of(pod),)
            for session in cycle.sessions
            if not (skip and isinstance(session, LanesSession | BookingSession))
            for _, limits in session.filter(shape, slice(None))
        ]


def digest(cycle: Cycle) -> dict[str, Any]:
    """Return everything that a cycle and its sessions may change, as plain values."""
    state = cycle.session(InterPodSession).state
    ledger = cycle.session(QuotaSession)._ledger
    return {
        "used": cycle.used.tobytes(),
        "ports": cycle.session(HostPortsSession).in_use.counts(),
        "volumes": dict(cycle.session(VolumesSession).uses),
        "near": {key: counts.tobytes() for key, counts in state._counts.items()},
        "weights": {key: counts.tobytes() for key, counts in state._weights.items()},
        "placed": dict(state._placed),
        "quotas": {name: (dict(one.used), dict(one.non_preemptible_used))
                   for name in ledger.names() for one in [ledger.account(name)]},
        "lanes": dict(cycle.session(LanesSession).taken),
        "booking": dict(cycle.session(BookingSession).used),
    }  # fmt: skip
