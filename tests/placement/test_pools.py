"""Pods of a tree of quotas run on the nodes of the tree only."""

from __future__ import annotations

import pytest
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import make_cluster, placed_on
from tests.objects import upsert_quota

from koord.core.engine.queue import find_pending
from koord.core.model.selectors import LabelSelector, Requirement, SelectorOperator, SelectorTerm
from koord.core.quota.profile import restrict_terms


def requires(key: str, *values: str) -> Requirement:
    return Requirement(key, SelectorOperator.IN, values)


A, B = (requires("pool", "a"),), (requires("pool", "b"),)
ZONE = requires("zone", "z")


@pytest.mark.parametrize(
    ("terms", "selectors", "confined"),
    [
        (None, (A,), (SelectorTerm(A),)),
        (None, (A, B), (SelectorTerm(A), SelectorTerm(B))),
        ((SelectorTerm((ZONE,)),), (A,), (SelectorTerm((ZONE, *A)),)),
        ((SelectorTerm((), (ZONE,)),), (A,), (SelectorTerm(A, (ZONE,)),)),
        (None, (None,), None),
        (None, (A, ()), None),
        ((SelectorTerm(),), (A,), ()),
        ((), (A,), ()),
    ],
)
def test_node_affinity_is_restricted_to_the_nodes_of_the_tree(terms, selectors, confined) -> None:
    assert restrict_terms(terms, *selectors) == confined


class Scene:
    """Two pools of one node each; the tree is that of pool a."""

    def __init__(self) -> None:
        self.cluster = make_cluster()
        self.state = self.cluster.state
        for pool in "ab":
            self.cluster.nodes(make_node(f"node-{pool}").gpu(8).label("pool", pool))
        self.set_root(A)
        team = make_quota("team", "q", parent="root", tree_id="t", max={GPU: 99})
        upsert_quota(self.state, team)

    def set_root(self, selector: LabelSelector) -> None:
        root = make_quota(
            "root",
            "q",
            is_parent=True,
            tree_id="t",
            is_tree_root=True,
            max={GPU: 99},
            total={GPU: 16},
            selector=selector,
        )
        upsert_quota(self.state, root)

    def add(self, name: str, quota: str, **selector: str) -> None:
        pod = make_pod(name).gpu(8).quota(quota).selector(**selector)
        self.state.upsert_pod(pod.build())

    def places(self) -> dict[str, str]:
        units = find_pending(self.state)
        return placed_on(self.cluster.plan(*units, pending=lambda: units))


def test_pods_go_to_the_nodes_of_their_tree() -> None:
    scene = Scene()
    scene.add("1", "team")
    scene.add("2", "team")
    scene.add("3", "")
    places = scene.places()
    assert places.keys() == {"1", "3"}
    assert (places["1"], places["3"]) == ("node-a", "node-b")


def test_the_node_affinity_of_the_pod_still_holds() -> None:
    scene = Scene()
    scene.add("1", "team", pool="b")
    assert scene.places() == {}


def test_pods_are_requeued_when_a_tree_loses_its_node_selector() -> None:
    scene = Scene()
    scene.add("1", "team", pool="b")
    feed = scene.state.feed()
    feed.drain()
    scene.set_root(A)
    assert not feed.drain().is_relabelled
    scene.set_root(None)
    assert feed.drain().is_relabelled
    assert scene.places() == {"1": "node-b"}
