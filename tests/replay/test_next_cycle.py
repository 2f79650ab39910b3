"""A cycle of the leader, recorded when it planned, is planned again with the same result."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientSession, TCPConnector, web
from tests.builders import make_node, make_pod, make_pod_group
from tests.controllers.scene import Scene
from tests.replay.worlds import record_world
from typer.testing import CliRunner

from koord.answers.leaders import Leader
from koord.cli.main import app
from koord.cli.next_cycle import CycleError, order_and_wait
from koord.core.engine import safe_planner
from koord.core.quota.hooks import Hooks
from koord.domains.registry import KINDS
from koord.replay.anonymise import anonymise_checked
from koord.replay.decisions import compare, decide, make_decisions
from koord.replay.leader import encode_cycle
from koord.replay.recorded import RecordedCluster
from koord.replay.snapshot_file import SnapshotSource, read_snapshot
from koord.runtime import cycle_snapshots
from koord.runtime.audit import CyclePages
from koord.runtime.cycle_snapshots import CycleSnapshots, PlannerSettings
from koord.runtime.http import Sources, make_app
from koord.runtime.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from koord.controllers.placement import PlacementController

NOW = 1_770_000_000.0


class Planner:
    """The controller that plans, on a recorded cluster, one cycle at a time."""

    def __init__(self, cluster: RecordedCluster, *, on_error: bool = False) -> None:
        self.cluster = cluster
        self.state = cluster.make_state(Hooks())
        self.clock = 0.0
        self.feed = self.state.feed()
        self.controller: PlacementController = replace(
            Scene().operator, state=self.state, clock=lambda: self.cluster.now
        )
        settings = PlannerSettings(cluster.options, cluster.compat, on_error=on_error)
        self.snapshots = CycleSnapshots(
            self.controller, self.take, settings, lambda _: (), lambda: self.clock
        )

    def take(self) -> ClusterSnapshot:
        kinds = {kind.name: kind for kind in KINDS}
        values = {kinds[name]: objects for name, objects in self.cluster.values.items()}
        return ClusterSnapshot(
            lambda: self.state, values, {}, tuple(self.state.nominations), self.state.now
        )

    def plan(self) -> bytes | None:
        """Plan one cycle and assume what it places; return the file, if one was ordered."""
        self.controller._absorb(self.feed.drain())
        units = {unit.key: unit for unit in self.controller._take()}
        plan = self.controller._plan(units)
        for refusal in plan.refusals:
            self.controller._refuse(units[refusal.unit], refusal)
        for placement in plan.placements:
            self.controller.queue.begin(units[placement.unit])
            for each in placement.assignments:
                self.state.assume(each.pod.uid, each.node, each.allocations)
        taken = self.snapshots.taken
        return None if taken is None else encode_cycle(taken)


def make_cluster() -> RecordedCluster:
    """Return a gang of two that starts, and a pod for which there is no room."""
    objects: dict[str, tuple[Any, ...]] = {
        "nodes": tuple(make_node(f"n{at}").gpu(8).build() for at in (0, 1)),
        "podgroups": (make_pod_group("team-a/train", min_member=2).build(),),
        "pods": (
            *(make_pod(f"team-a/w-{at}").gang("team-a/train").gpu(8).build() for at in (0, 1)),
            make_pod("team-b/late").gpu(8).created(NOW).build(),
        ),
    }
    return RecordedCluster(NOW, objects)


@pytest.mark.parametrize("number", range(5, 150, 12))
def test_a_cycle_of_the_leader_is_planned_again_with_the_same_result(
    number: int, tmp_path: Path
) -> None:
    """Also one in which pods are assumed of which nothing is seen yet."""
    planner = Planner(record_world(number))
    path = tmp_path / "f.ksnap"
    for _ in range(2):
        planner.clock += cycle_snapshots.PAUSE_SECONDS
        assert planner.snapshots.order("")
        content = planner.plan()
        if content is None:
            continue  # nothing waits
        path.write_bytes(content)
        read = read_snapshot(path)
        assert read.source is SnapshotSource.LEADER
        again = decide(read.cluster, read.cluster.make_state(Hooks()))
        assert not [*compare(read.decisions, again)]
        planner.controller.queue.wake_all()


def test_the_command_compares_with_what_the_leader_has_decided(tmp_path: Path) -> None:
    planner = Planner(make_cluster())
    assert planner.snapshots.order("team-b/late")
    content = planner.plan()
    assert content is not None
    path = tmp_path / "next.ksnap"
    path.write_bytes(content)
    answer = CliRunner().invoke(app, ["replay", str(path)])
    assert answer.exit_code == 0, answer.output
    assert "by the leader" in answer.stdout
    assert "2 units, the same is decided" in answer.stdout
    anonymised = anonymise_checked(read_snapshot(path), Hooks)
    assert "team-b" not in repr(anonymised.snapshot)
    cluster = anonymised.snapshot.cluster
    assert len(decide(cluster, cluster.make_state(Hooks()))) == 2


def test_only_the_cycle_that_plans_the_unit_is_taken() -> None:
    planner = Planner(make_cluster())
    assert planner.snapshots.order("team-c/other")
    assert planner.plan() is None
    assert planner.snapshots.is_waiting
    assert not planner.snapshots.order("team-a/train"), "once a minute"
    planner.clock += cycle_snapshots.KEPT_SECONDS
    assert not planner.snapshots.is_waiting


def test_what_was_taken_is_not_kept_for_ever() -> None:
    planner = Planner(make_cluster())
    assert planner.snapshots.order("")
    assert planner.plan() is not None
    planner.clock += cycle_snapshots.KEPT_SECONDS
    assert planner.snapshots.taken is None


def test_a_plan_that_is_different_is_told() -> None:
    planner = Planner(make_cluster())
    planner.snapshots.order("")
    planner.plan()
    taken = planner.snapshots.taken
    assert taken is not None
    other = replace(taken.plan, placements=())
    changes = [
        *compare(make_decisions(taken.units, taken.plan), make_decisions(taken.units, other))
    ]
    assert [change.names for change in changes] == [("team-a/train",)]


@pytest.mark.isolates
def test_a_cycle_that_fails_is_kept_without_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    planner = Planner(make_cluster(), on_error=True)
    assert planner.plan() is None, "nothing has failed"
    planner.controller.queue.wake_all()
    monkeypatch.setattr(safe_planner, "plan", fail)
    assert planner.plan() is not None
    taken = planner.snapshots.taken
    assert taken is not None
    assert taken.unit == "team-b/late"
    planner.clock += cycle_snapshots.ERROR_SECONDS - 1
    planner.controller.queue.wake_all()
    planner.plan()
    assert planner.snapshots.taken is taken, "one an hour"
    planner.clock += 1
    assert planner.snapshots.taken is None


# --- over HTTP ---------------------------------------------------------------------------------


def connect() -> ClientSession:
    return ClientSession(connector=TCPConnector(force_close=True))


def make_leader(holder: str) -> Leader:
    return Leader("koord-operators", holder, "", 0.0, None)


@asynccontextmanager
async def serve(planner: Planner, *, leads: bool = True) -> AsyncIterator[str]:
    async def ask(question: Any) -> Any:
        return question()

    async def nothing() -> bytes:
        return b""

    pages = CyclePages(planner.snapshots, encode_cycle, "leader-a", lambda: leads, ask)
    sources = Sources(problem=str, unsynced=tuple, metrics=nothing, state=nothing, cycles=pages)
    runner = web.AppRunner(make_app(sources))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0]
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()


async def test_the_file_is_fetched_once_the_cycle_is_planned(tmp_path: Path) -> None:
    planner = Planner(make_cluster())
    leader = make_leader("leader-a")
    async with serve(planner) as address, connect() as session:
        async with session.get(f"http://{address}/feed/snapshot") as answer:
            assert answer.status == 404
        order = planner.snapshots.order

        def order_and_plan(unit: str) -> bool:
            is_taken = order(unit)
            planner.plan()
            return is_taken

        planner.snapshots.order = order_and_plan
        content = await order_and_wait(session, address, "team-a/train", leader)
        path = tmp_path / "f.ksnap"
        path.write_bytes(content)
        assert read_snapshot(path).unit == "team-a/train"
        with pytest.raises(CycleError, match="429: one was ordered"):
            await order_and_wait(session, address, "", leader)
        planner.clock += cycle_snapshots.PAUSE_SECONDS
        with pytest.raises(CycleError, match="not that of the leader leader-b"):
            await order_and_wait(session, address, "", make_leader("leader-b"))


async def test_a_process_that_does_not_lead_takes_no_orders() -> None:
    async with (
        serve(Planner(make_cluster()), leads=False) as address,
        connect() as session,
    ):
        with pytest.raises(CycleError, match="503: this process does not lead"):
            await order_and_wait(session, address, "", None)
