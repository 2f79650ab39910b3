"""Quotas of several node pools for one namespace: the pod says which it means."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_unit

from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm, is_selected
from koord.core.quota.model import KOORDINATOR, QuotaSpec
from koord.core.quota.reasons import QuotaAmbiguous
from koord.core.quota.registry import PoolRequirements, choose_quotas
from koord.core.quota.spec_errors import QuotaProblem

GPU = "nvidia.com/gpu"
MODEL = "nvidia.com/gpu.product"
AMOUNTS = {"cpu": 64_000, GPU: 8}


def make_root(name: str, *models: str) -> QuotaSpec:
    return make_quota(
        *(name, "q"),
        min=AMOUNTS,
        max=AMOUNTS,
        total=AMOUNTS,
        tree_id=name,
        is_tree_root=True,
        is_parent=True,
        selector=(Requirement(MODEL, SelectorOperator.IN, models),),
    )


def make_team(name: str, parent: str, *, namespace: str = "team", **most: int) -> QuotaSpec:
    most = most or AMOUNTS
    return make_quota(
        name, "q", parent=parent, tree_id=parent, min=most, max=most, namespaces=(namespace,)
    )


A100, H100 = make_root("a100", "A100"), make_root("h100", "H100")
TEAM_A, TEAM_H = make_team("team-a", "a100"), make_team("team-h", "h100")


def make_cluster(*quotas: QuotaSpec, **options: object) -> FakeCluster:
    cluster = FakeCluster(**options).nodes(
        make_node("a").gpu(8).label(MODEL, "A100"),
        make_node("h").gpu(8).label(MODEL, "H100"),
    )
    return cluster.quotas(A100, H100, *quotas)


def place(cluster: FakeCluster, pod: object) -> object:
    """Return the node of a pod, or why it waits."""
    outcome = cluster.pods(pod).plan(make_unit("p", [pod]))
    if outcome.refusals:
        return outcome.refusals[0].reason
    return outcome.placements[0].assignments[0].node


class TestPodsSayWhichTheyMean:
    @pytest.mark.parametrize(("model", "node"), [("A100", "a"), ("H100", "h")])
    def test_by_their_node_selector(self, model: str, node: str) -> None:
        cluster = make_cluster(TEAM_A, TEAM_H)
        pod = make_pod("team/p").gpu(8).select(MODEL, model).build()
        assert place(cluster, pod) == node
        cluster.state.refresh()
        assert cluster.state.quotas.quota_of(pod) == f"team-{node}"

    def test_or_they_wait_and_are_told_how(self) -> None:
        reason = place(make_cluster(TEAM_A, TEAM_H), make_pod("team/p").gpu(8).build())
        assert reason == QuotaAmbiguous("team", ("team-a", "team-h"))
        assert reason.text() == (
            "namespace team has several quotas, and these pods could be of team-a, team-h; add a "
            "nodeSelector with the labels of the node pool to the pods, or name the quota in the "
            "label quota.scheduling.koordinator.sh/name"
        )

    def test_by_the_label_of_the_quota(self) -> None:
        pod = make_pod("team/p").gpu(8).quota("team-h").build()
        assert place(make_cluster(TEAM_A, TEAM_H), pod) == "h"

    def test_by_a_device_that_only_one_quota_has(self) -> None:
        npus = {"cpu": 64_000, "huawei.com/npu": 8}
        other = replace(H100, min=npus, max=npus, total=npus)
        cluster = make_cluster(TEAM_A, other, replace(TEAM_H, min=npus, max=npus))
        assert place(cluster, make_pod("team/p").gpu(8).build()) == "a"


def test_pods_that_waited_start_once_one_quota_is_left() -> None:
    cluster = make_cluster(TEAM_A, TEAM_H).pods(make_pod("team/p").gpu(8))
    assert cluster.step() == []
    assert isinstance(cluster.reason(), QuotaAmbiguous)
    assert cluster.quotas(replace(TEAM_H, namespaces=())).step() == ["p"]


class TestOnlyQuotasOfDifferentPoolsShareANamespace:
    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (TEAM_A, make_team("other", "a100")),
            (TEAM_A, replace(make_team("flat", ""), parent="koordinator-root-quota")),
        ],
        ids=["of the same pool", "of no pool"],
    )
    def test_others_are_refused(self, first: QuotaSpec, second: QuotaSpec) -> None:
        cluster = make_cluster(first, replace(second, created=1.0, min={}))
        cluster.state.refresh()
        problem = cluster.state.quotas.catalog.problem_of(second.name)
        assert problem is not None
        assert (problem.rule, problem.other) == (QuotaProblem.NAMESPACE_BOUND, "team-a")

    def test_with_the_rules_of_koordinator_none_do(self) -> None:
        cluster = make_cluster(TEAM_A, TEAM_H, compat=True)
        cluster.state.refresh()
        assert cluster.state.quotas.catalog.rules == KOORDINATOR
        assert cluster.state.quotas.catalog.problem_of("team-h") is not None


VALUES = ("x", "y")
KEYS = ("k", "l")
REQUIREMENTS = st.builds(
    Requirement,
    st.sampled_from(KEYS),
    st.sampled_from([SelectorOperator.IN, SelectorOperator.NOT_IN]),
    st.lists(st.sampled_from(VALUES), min_size=1, unique=True).map(tuple),
) | st.builds(
    Requirement,
    st.sampled_from(KEYS),
    st.sampled_from([SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST]),
)
SELECTORS = st.lists(REQUIREMENTS, min_size=1, max_size=2).map(tuple)
LABELS = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value}
    for values in product((*VALUES, "z", ""), repeat=2)
]
WISHES = st.builds(
    PoolRequirements,
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)).map(
        lambda chosen: tuple(sorted(chosen.items()))
    ),
    st.none()
    | st.lists(st.lists(REQUIREMENTS, min_size=1, max_size=2), min_size=1, max_size=2).map(
        lambda terms: tuple(SelectorTerm(tuple(term)) for term in terms)
    ),
)


@given(wish=WISHES, selectors=st.lists(SELECTORS, min_size=2, max_size=3, unique=True))
def test_no_pod_is_charged_to_a_pool_where_it_cannot_go_while_it_could_go_to_another(
    wish: PoolRequirements, selectors: list
) -> None:
    """Against all labels that a node can have; a pod that fits nowhere waits anyway."""
    pools = {str(at): (selector,) for at, selector in enumerate(selectors)}
    quotas = [make_quota(f"q{tree}", tree_id=tree, max=AMOUNTS) for tree in pools]
    goes = [
        labels
        for labels in LABELS
        if any(is_selected(labels, mine) for mine in wish.alternatives())
    ]
    possible = {
        f"q{tree}"
        for tree, (selector,) in pools.items()
        if any(is_selected(labels, selector) for labels in goes)
    }
    chosen = choose_quotas(wish, quotas, pools)
    if len(chosen) == 1 and possible:
        assert set(chosen) <= possible
