"""What is written for the agents of nodes, and when nothing is. The server is a stand-in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.builders import make_node
from tests.cluster import FakeCluster, make_cluster
from tests.objects import upsert_numa

from koord.controllers import node_publishing
from koord.controllers.node_publishing import NodePolicy, NodePublisher
from koord.controllers.node_ratios import NodeRatioPolicy
from koord.controllers.node_slo import NodeSloPolicy
from koord.core.amplification.ratios import (
    NORMALIZATION_KEY,
    OFFER_KEY,
    Normalization,
    NormalizationStrategies,
    OfferStrategies,
    ResourceOffers,
)
from koord.core.load.model import LoadSource, NodeLoad
from koord.core.load.plugin import Loads
from koord.core.model.processor import Processor
from koord.core.nodeslo.defaults import THRESHOLDS
from koord.core.nodeslo.plugin import NodeSlos, ObservedSlo
from koord.core.nodeslo.render import KEYS, ThresholdPart
from koord.core.numa.model import NumaReport
from koord.core.slo_config.plugin import SloConfig, SloConfigs
from koord.kube.errors import Forbidden
from koord.kube.translate.ratios import read_shown_ratios

if TYPE_CHECKING:
    from koord.kube.client import Client
    from koord.kube.events import EventRecorder

RATIOS = "node.koordinator.sh/resource-amplification-ratio"
NORMALIZATION = "node.koordinator.sh/cpu-normalization-ratio"


@dataclass
class Server:
    """Stands in for the API server, events and warnings; ``refuses`` are paths."""

    writes: list[tuple[str, Any]] = field(default_factory=list)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)
    manager: str = ""

    async def patch(self, path: str, body: Any, *_: Any) -> None:
        if path in self.refuses:
            raise Forbidden(403, "Forbidden", "no")
        self.writes.append((path, body))

    def record(self, ref: Any, _kind: Any, *, action: str, reason: str, note: str) -> None:
        self.events.append((ref.name, reason, note))

    def forget(self, *_: Any) -> None:
        pass

    def warn(self, reason: str, _text: str) -> None:
        self.warnings.append(reason)

    async def find_manager(self) -> str:
        return self.manager

    def look(self, cluster: FakeCluster, policy: NodePolicy) -> list[tuple[str, Any]]:
        publisher = NodePublisher(
            cluster.state, policy, self.find_manager, lambda: True, lambda: 0.0, self.warn
        )
        self.writes.clear()
        asyncio.run(publisher.look())
        self.left = publisher.left
        return list(self.writes)


def configure(cluster: FakeCluster, *values: object, invalid: str = "") -> None:
    problems = {invalid: ("bad",)} if invalid else {}
    made = SloConfig("uid", {type(value): value for value in values}, problems)
    cluster.state.plugin(SloConfigs).upsert(made)


def ratios_of(server: Server, cluster: FakeCluster) -> NodeRatioPolicy:
    client, events = cast("Client", server), cast("EventRecorder", server)
    return NodeRatioPolicy(cluster.state, client, events)


def slos_of(server: Server, cluster: FakeCluster) -> NodeSloPolicy:
    return NodeSloPolicy(cluster.state, cast("Client", server), server.warn)


XEON = NormalizationStrategies(Normalization(is_on=True, default=1.2))
TWICE = OfferStrategies(ResourceOffers(is_on=True, ratios={"cpu": 1.5}))


def test_ratios_of_all_nodes_are_written_once() -> None:
    cluster, server = make_cluster().nodes(make_node("n0"), make_node("n1")), Server()
    upsert_numa(cluster.state, NumaReport("n0", processor=Processor("Xeon")))
    configure(cluster, XEON, TWICE)
    policy = ratios_of(server, cluster)
    ((path, body),) = server.look(cluster, policy)
    assert path == "/api/v1/nodes/n0/status"
    assert body["metadata"]["annotations"] == {NORMALIZATION: "1.20", RATIOS: '{"cpu":1.80}'}
    ((name, reason, note),) = server.events
    assert (name, reason, policy.refused) == ("n1", "UnknownProcessor", 1)
    assert "stay as they are" in note
    node = cluster.state.table.node_at(cluster.row("n0"))
    cluster.nodes(replace(node, extensions=read_shown_ratios(body["metadata"]["annotations"])))
    assert server.look(cluster, policy) == []


def test_specs_of_thousands_of_nodes_are_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = (make_node(f"n{at}") for at in range(3 * node_publishing.IN_A_ROW))
    cluster, server, rendered = make_cluster().nodes(*nodes), Server(), list[object]()
    policy = slos_of(server, cluster)

    def render(*strategies: Any) -> dict[str, Any]:
        rendered.append(strategies)
        return {"resourceUsedThresholdWithBE": {"enable": len(rendered) > 1}}

    monkeypatch.setattr("koord.controllers.node_slo.render_chosen", render)
    for _ in range(2):
        writes = server.look(cluster, policy)
        assert len(writes) == node_publishing.MOST_WRITES
    assert len(rendered) == 2, "each look renders again: settings may have changed"
    assert writes[0][1]["spec"]["resourceUsedThresholdWithBE"] == {"enable": True}


def test_nothing_is_written_that_nobody_has_configured() -> None:
    cluster, server = make_cluster().nodes(make_node("n0")), Server()
    assert server.look(cluster, ratios_of(server, cluster)) == []
    configure(cluster)
    assert server.look(cluster, ratios_of(server, cluster)) == []


def test_nothing_is_written_while_the_manager_of_koordinator_runs() -> None:
    cluster, server = make_cluster().nodes(make_node("n0")), Server(manager="koord-manager-0")
    configure(cluster, TWICE)
    assert server.look(cluster, ratios_of(server, cluster)) == []
    assert server.look(cluster, slos_of(server, cluster)) == []
    assert server.warnings == ["ManagedElsewhere", "ManagedElsewhere"]
    server.manager = ""
    assert len(server.look(cluster, ratios_of(server, cluster))) == 1


@pytest.mark.isolates
def test_a_refused_write_and_a_broken_node_keep_no_other_from_being_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = make_cluster().nodes(*(make_node(f"n{at}") for at in range(3)))
    server = Server(refuses={"/api/v1/nodes/n0/status"})
    configure(cluster, TWICE)
    policy = ratios_of(server, cluster)
    find = NodeRatioPolicy.find

    def fail(self: NodeRatioPolicy, node: Any) -> Any:
        if node.name == "n1":
            raise ZeroDivisionError
        return find(self, node)

    monkeypatch.setattr(NodeRatioPolicy, "find", fail)
    assert [path for path, _ in server.look(cluster, policy)] == ["/api/v1/nodes/n2/status"]


def test_writes_per_look_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_publishing, "MOST_WRITES", 2)
    cluster = make_cluster().nodes(*(make_node(f"n{at}") for at in range(5)))
    server = Server()
    configure(cluster, TWICE)
    assert len(server.look(cluster, ratios_of(server, cluster))) == 2
    assert server.left == 3


def test_each_node_gets_the_node_slo_of_its_strategy_and_owns_it() -> None:
    cluster = make_cluster().nodes(make_node("n0").label("size", "large"))
    server = Server()
    configure(cluster, ThresholdPart({**THRESHOLDS, "enable": True}))
    policy = slos_of(server, cluster)
    ((path, body),) = server.look(cluster, policy)
    assert path == "/apis/slo.koordinator.sh/v1alpha1/nodeslos/n0"
    assert body["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert body["spec"]["resourceUsedThresholdWithBE"]["enable"] is True
    cluster.state.plugin(NodeSlos).upsert(ObservedSlo("n0", "u", body["spec"]))
    assert server.look(cluster, policy) == []
    configure(cluster)
    ((_, body),) = server.look(cluster, policy)
    assert body["spec"]["resourceUsedThresholdWithBE"]["enable"] is False


def test_a_text_that_was_never_valid_leaves_node_slos_as_they_are() -> None:
    cluster, server = make_cluster().nodes(make_node("n0"), make_node("n1")), Server()
    configure(cluster, invalid=KEYS[ThresholdPart])
    shown = {"resourceUsedThresholdWithBE": {"enable": True}, "hostApplications": [{"name": "x"}]}
    cluster.state.plugin(NodeSlos).upsert(ObservedSlo("n0", "u", shown))
    written = {
        path.rpartition("/")[2]: body["spec"]
        for path, body in server.look(cluster, slos_of(server, cluster))
    }
    assert written["n0"]["resourceUsedThresholdWithBE"] == {"enable": True}
    assert "hostApplications" not in written["n0"]
    assert written["n1"]["resourceUsedThresholdWithBE"] == THRESHOLDS


@pytest.mark.parametrize(("given", "invalid"), [(XEON, OFFER_KEY), (TWICE, NORMALIZATION_KEY)])
def test_a_text_that_was_never_valid_leaves_ratios_as_they_are(given: object, invalid: str) -> None:
    cluster, server = make_cluster().nodes(make_node("n0")), Server()
    upsert_numa(cluster.state, NumaReport("n0", processor=Processor("Xeon")))
    configure(cluster, given, invalid=invalid)
    assert server.look(cluster, ratios_of(server, cluster)) == []
    configure(cluster, XEON, TWICE, invalid=invalid)  # the last valid one is in force
    assert len(server.look(cluster, ratios_of(server, cluster))) == 1


def test_it_is_said_once_that_nothing_applies_node_slos() -> None:
    cluster, server = make_cluster().nodes(make_node("n0"), make_node("n1")), Server()
    policy = slos_of(server, cluster)
    server.look(cluster, policy)
    server.look(cluster, policy)
    assert server.warnings == ["NodeSLONotApplied"]
    report = NodeLoad("n1", LoadSource.NODE_METRIC, updated=1.0)
    cluster.state.plugin(Loads).upsert(report)
    server.look(cluster, policy)
    assert (policy.with_agent, policy.without_agent) == (1, 1)
    assert server.warnings == ["NodeSLONotApplied"]
