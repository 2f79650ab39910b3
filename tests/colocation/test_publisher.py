"""What is written to nodes, when, and what is left to others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster
from tests.colocation.nodes import NOW

from koord.controllers.over_commit import MOST_OVERWRITES, OverCommitPublisher
from koord.core.colocation.node_facts import NAME, facts_of
from koord.core.colocation.plugin import ColocationPolicies
from koord.core.colocation.strategy import PolicySettings
from koord.core.engine.policies import ObservedPolicy
from koord.core.load.model import NodeLoad
from koord.core.load.plugin import Loads
from koord.core.slo_config.plugin import SloConfig, SloConfigs
from koord.kube.errors import Invalid, NotFound
from koord.kube.translate.colocation import translate_policy

if TYPE_CHECKING:
    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster

    from koord.core.model.nodes import Node

CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


class FakeNodes:
    """Stands in for the API server: applies JSON patches to nodes of the cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.writes = 0
        self.error: Exception | None = None
        self.revision = 0

    async def change(self, node: Node, operations: list[dict[str, Any]]) -> None:
        if self.error is not None:
            raise self.error
        self.writes += 1
        facts = facts_of(node)
        parts: dict[str, dict[str, str]] = {
            "/status/allocatable": dict(facts.allocatable),
            "/status/capacity": dict(facts.capacity),
            "/metadata/annotations": {
                key: text
                for key, text in (
                    ("operators.koordinator.sh/over-commit", facts.record),
                    ("node.koordinator.sh/originExtendedAllocatable", facts.origin),
                )
                if text is not None
            },
        }
        for operation in operations:
            path, _, escaped = operation["path"].rpartition("/")
            key, part = escaped.replace("~1", "/"), parts[path]
            if operation["op"] == "test":
                assert part[key] == operation["value"]
            elif operation["op"] == "remove":
                del part[key]
            else:
                part[key] = operation["value"]
        self.put(node, **parts)

    def put(self, node: Node, **parts: dict[str, str]) -> None:
        """Have the node observed with these amounts and annotations."""
        self.revision += 1
        allocatable, capacity = parts["/status/allocatable"], parts["/status/capacity"]
        annotations = parts["/metadata/annotations"]
        record = annotations.get("operators.koordinator.sh/over-commit")
        facts = replace(
            facts_of(node),
            allocatable=tuple(sorted(allocatable.items())),
            capacity=tuple(sorted(capacity.items())),
            record=record,
            recorded=tuple(sorted((k, int(v or 0)) for k, v in json.loads(record or "{}").items())),
            withdrawn=tuple(k for k, v in json.loads(record or "{}").items() if v is None),
            origin=annotations.get("node.koordinator.sh/originExtendedAllocatable"),
        )
        plain = {key: n for key, n in node.allocatable.items() if "-" not in key}
        self.cluster.nodes(
            replace(
                node,
                allocatable={**plain, **{key: int(text) for key, text in allocatable.items()}},
                capacity={**plain, **{key: int(text) for key, text in capacity.items()}},
                extensions=((NAME, facts),),
                resource_version=str(self.revision),
            )
        )


class Publishing:
    """A node of 64 CPUs and 256 GiB in a cluster, a policy that selects all, and the time."""

    def __init__(self, *pods: PodBuilder, compat: bool = False, **spec: Any) -> None:
        self.cluster = make_cluster(compat=compat)
        made = make_node("n0").build()
        self.cluster.nodes(replace(made, capacity=dict(made.allocatable)))
        self.cluster.pods(*pods)
        self.now, self.rival = NOW, ""
        self.nodes = FakeNodes(self.cluster)
        self.set_policy(**spec)
        self.start()

    def start(self) -> None:
        """Start the operator, as after a crash."""
        self.publisher = OverCommitPublisher(
            self.cluster.state,
            self.nodes,  # type: ignore[arg-type]
            lambda: self.now,
            lambda: self.rival,
            self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def set_policy(self, **spec: Any) -> None:
        settings = translate_policy(json.dumps(spec).encode())
        self.cluster.state.plugin(ColocationPolicies).upsert(
            ObservedPolicy("p", "uid-p", 1, 1.0, settings)
        )

    async def round(
        self, used: int = 0, *, after: float = 60.0, pods: dict[str, Any] | None = None
    ) -> float | None:
        """Report that the system uses so many milli-CPUs, and have the node looked at."""
        self.now += after
        usage = {"cpu": used, "memory": 0}
        self.cluster.state.plugin(Loads).upsert(
            NodeLoad("n0", updated=self.now, usage=usage, system=usage, pods=pods or {})
        )
        return await self.publisher.update("n0")

    @property
    def node(self) -> Node:
        return self.cluster.state.table.node_at(0)

    @property
    def published(self) -> dict[str, int]:
        return {key: n for key, n in self.node.allocatable.items() if key.startswith("kubern")}


async def test_a_node_gets_all_four_resources_in_capacity_and_allocatable() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100, midUnallocatedPercent=10)
    await publishing.round(4_000)
    assert publishing.published == {
        CPU: 60_000,
        MEMORY: 256 * 1024**3 * 65 // 100 + 1,
        "kubernetes.io/mid-cpu": 6_000,
        "kubernetes.io/mid-memory": 256 * 1024**3 // 10,
    }
    assert facts_of(publishing.node).capacity == facts_of(publishing.node).allocatable
    assert dict(facts_of(publishing.node).recorded) == publishing.published


async def test_small_changes_are_not_written_and_falls_are_slow() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100)
    await publishing.round(4_000)
    await publishing.round(5_000)
    assert publishing.nodes.writes == 1
    await publishing.round(40_000)
    assert publishing.published[CPU] == 59_000 - 12_800  # a fifth of 64 CPUs
    await publishing.round(40_000)
    await publishing.round(40_000)
    assert publishing.published[CPU] == 24_000
    await publishing.round(4_000)
    assert publishing.published[CPU] == 24_000
    await publishing.round(4_000)
    assert publishing.published[CPU] == 60_000


async def test_with_koordinators_rules_every_value_counts_at_once() -> None:
    publishing = Publishing(compat=True, cpuReclaimThresholdPercent=100)
    await publishing.round(4_000)
    await publishing.round(40_000)
    assert publishing.published[CPU] == 24_000
    await publishing.round(4_000)
    assert publishing.published[CPU] == 60_000


async def test_an_old_report_resets_to_nothing_or_to_zero_while_pods_use_it() -> None:
    publishing = Publishing()
    wait = await publishing.round(4_000)
    assert wait is not None
    assert wait == 15 * 60 + 1
    publishing.now += 15 * 60
    await publishing.publisher.update("n0")
    assert publishing.published
    publishing.now += 1
    await publishing.publisher.update("n0")
    assert publishing.published == {}
    assert facts_of(publishing.node).record is None
    await publishing.round(4_000)
    publishing.cluster.pods(make_pod("b").resource(CPU, 500).running("n0"))
    publishing.now += 15 * 60 + 1
    await publishing.publisher.update("n0")
    assert publishing.published == {CPU: 0}


async def test_third_parties_are_taken_off_and_the_whole_is_noted_beside() -> None:
    publishing = Publishing(compat=True, cpuReclaimThresholdPercent=100)
    for held, left in ((10_000, 15_000), (30_000, 0)):
        facts = facts_of(publishing.node)
        theirs = replace(facts, third_party=((CPU, held),), has_third_party=True)
        publishing.cluster.nodes(replace(publishing.node, extensions=((NAME, theirs),)))
        await publishing.round(39_000)
        assert publishing.published[CPU] == left
        origin = json.loads(facts_of(publishing.node).origin or "")
        assert origin["resources"][CPU] == "25000"


async def test_a_static_part_of_mid_stays_without_reports() -> None:
    publishing = Publishing(midReclaimMode="static", midStaticCPUReservedPercent=50)
    await publishing.round(4_000)
    publishing.now += 15 * 60 + 1
    await publishing.publisher.update("n0")
    assert publishing.published == {"kubernetes.io/mid-cpu": 32_000, "kubernetes.io/mid-memory": 0}


async def test_what_is_switched_off_is_removed_and_what_is_not_ours_stays() -> None:
    publishing = Publishing()
    await publishing.round(4_000)
    publishing.set_policy(enable=False)
    assert "n0" in publishing.publisher.changed()
    await publishing.publisher.update("n0")
    assert publishing.published == {}
    # Somebody else's resource, on a node that is not to offer anything.
    parts = {"/status/allocatable": {CPU: "7"}, "/status/capacity": {CPU: "7"}}
    publishing.nodes.put(publishing.node, **parts, **{"/metadata/annotations": {}})
    await publishing.publisher.update("n0")
    assert publishing.published == {CPU: 7}


async def test_a_restart_changes_nothing() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100)
    await publishing.round(4_000)
    await publishing.round(40_000)
    before = publishing.published
    publishing.start()
    writes = publishing.nodes.writes
    await publishing.publisher.update("n0")
    assert publishing.nodes.writes - writes <= 1
    assert publishing.published[CPU] >= before[CPU] - 12_800
    publishing.start()
    await publishing.round(40_000)
    publishing.start()
    writes, before = publishing.nodes.writes, publishing.published
    await publishing.publisher.update("n0")
    assert (publishing.nodes.writes, publishing.published) == (writes, before)


async def test_another_writer_is_noticed_and_the_node_left_to_it() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100)
    for _ in range(MOST_OVERWRITES + 3):
        await publishing.round(4_000)
        facts = facts_of(publishing.node)
        theirs = {CPU: "1"}
        publishing.nodes.put(
            publishing.node,
            **{"/status/allocatable": theirs, "/status/capacity": theirs},
            **{"/metadata/annotations": {"operators.koordinator.sh/over-commit": facts.record}},  # type: ignore[dict-item]
        )
    assert publishing.nodes.writes == MOST_OVERWRITES
    assert publishing.published == {CPU: 1}


async def test_nothing_is_written_while_koordinators_manager_runs() -> None:
    publishing = Publishing()
    publishing.rival = "koord-manager-0"
    await publishing.round(4_000)
    assert publishing.published == {}
    publishing.publisher.changed()
    publishing.rival = ""
    assert "n0" in publishing.publisher.changed()
    await publishing.round(4_000)
    assert publishing.published


async def test_settings_that_were_never_valid_leave_nodes_as_they_are() -> None:
    publishing = Publishing()
    await publishing.round(4_000)
    before = publishing.published
    state = publishing.cluster.state
    policies = state.plugin(ColocationPolicies)
    policies.remove(policies.policies["p"])
    state.plugin(SloConfigs).upsert(SloConfig("u", problems={"colocation-config": ("broken",)}))
    publishing.start()
    await publishing.publisher.update("n0")
    assert publishing.published == before
    state.plugin(SloConfigs).upsert(SloConfig("u"))
    await publishing.publisher.update("n0")
    assert publishing.published == {}


@pytest.mark.parametrize(
    ("error", "outcome", "again"),
    [
        (Invalid(422, "Invalid", "test failed"), "conflict", 3.0),
        (NotFound(404, "NotFound", "no"), "gone", None),
    ],
)
async def test_writes_that_fail_are_counted(
    error: Exception,
    outcome: str,
    again: float | None,
) -> None:
    publishing = Publishing()
    publishing.nodes.error = error
    assert await publishing.round() == again
    assert publishing.publisher.outcomes == {outcome: 1}


async def test_writes_are_spread_in_time() -> None:
    publishing = Publishing(compat=True)
    cluster = publishing.cluster
    for at in range(1, 101):
        made = make_node(f"n{at}").build()
        cluster.nodes(replace(made, capacity=dict(made.allocatable)))
        cluster.state.plugin(Loads).upsert(NodeLoad(f"n{at}", updated=publishing.now))
    began = publishing.now
    for at in range(1, 101):
        await publishing.publisher.update(f"n{at}")
    assert publishing.now - began == pytest.approx(99 / 50)


async def test_nodes_that_are_gone_are_forgotten() -> None:
    publishing = Publishing()
    await publishing.round()
    publishing.cluster.state.remove_node("n0")
    assert await publishing.publisher.update("n0") is None
    assert publishing.publisher.offered == {}


def test_settings_are_valid() -> None:
    assert isinstance(translate_policy(b"{}"), PolicySettings)


async def test_pods_that_come_or_change_are_counted_again() -> None:
    publishing = Publishing(compat=True, cpuReclaimThresholdPercent=100)
    await publishing.round(4_000)
    publishing.cluster.pods(make_pod("web").resource("cpu", 10_000).running("n0"))
    await publishing.round(4_000)
    assert publishing.published[CPU] == 50_000
    publishing.cluster.pods(make_pod("web").resource("cpu", 20_000).running("n0"))
    await publishing.round(4_000)
    assert publishing.published[CPU] == 40_000
