"""Claims that are bound with their first pod: nodes that may serve them, and what starts with them.

The law: nothing is released for a unit that may then start in part. A pod that only kube-scheduler
can place is planned where kube-scheduler may accept it, and never together with others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group, select_labels
from tests.cluster import FakeCluster, make_cluster, make_unit, nodes_of
from tests.objects import remove_volume, upsert_claim, upsert_storage_class, upsert_volume

from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.kube_scheduler_reasons import LateClaim, PlacementUnknown
from koord.core.model.pods import Handling
from koord.core.model.selectors import SelectorTerm
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.late_volumes import StorageClass, VolumeOffer, WantedVolume
from koord.core.plugins.volumes import Volume, VolumeClaim

if TYPE_CHECKING:
    from tests.builders import PodBuilder

RWO = "ReadWriteOnce"
FIELD = "spec.volumes[0].persistentVolumeClaim"
NODES = tuple(f"n{at}" for at in range(4))


def make_nodes() -> FakeCluster:
    cluster = make_cluster()
    for at, name in enumerate(NODES):
        cluster.nodes(make_node(name).label("zone", "ab"[at % 2]))
    return cluster


def on(*names: str) -> tuple[SelectorTerm, ...]:
    return tuple(SelectorTerm(select_labels(**{"kubernetes.io/hostname": name})) for name in names)


def add_class(cluster: FakeCluster, **fields: object) -> None:
    made = StorageClass("late", is_delayed=True, **fields)  # type: ignore[arg-type]
    upsert_storage_class(cluster.state, made)


def add_claim(cluster: FakeCluster, name: str = "c", size: int = 5, **fields: object) -> None:
    wanted = WantedVolume(size, (RWO,), **fields)  # type: ignore[arg-type]
    claim = VolumeClaim(f"default/{name}", storage_class="late", wanted=wanted)
    upsert_claim(cluster.state, claim)


def add_volume(
    cluster: FakeCluster, name: str, *nodes: str, size: int = 10, claim: str = ""
) -> None:
    offer = VolumeOffer("late", size, (RWO,), claim=claim and f"default/{claim}")
    upsert_volume(cluster.state, Volume(name, on(*nodes) if nodes else None, offer=offer))


def theirs(name: str = "p", *claims: str) -> PodBuilder:
    return make_pod(name).handling(Handling.RELEASE_PINNED).claims(*claims or ("c",))


def test_a_claim_may_be_served_where_a_volume_is() -> None:
    cluster = make_nodes()
    add_class(cluster, is_static=True)
    add_claim(cluster)
    assert cluster.feasible(theirs()) == ""
    add_volume(cluster, "v3", "n3")
    assert cluster.feasible(theirs()) == "n3"
    add_volume(cluster, "small", "n1", size=1)
    add_volume(cluster, "v0", "n0")
    assert cluster.feasible(theirs()) == "n0 n3"
    remove_volume(cluster.state, "v3")
    assert cluster.feasible(theirs()) == "n0"
    assert nodes_of(cluster.plan(make_unit("u", (theirs(),)))) == {"p": "n0"}
    add_volume(cluster, "net")
    assert cluster.feasible(theirs()) == " ".join(NODES)
    add_volume(cluster, "kept", "n2", claim="c")
    assert cluster.feasible(theirs()) == "n2"


def test_a_claim_may_be_served_where_a_volume_can_be_made() -> None:
    cluster = make_nodes()
    add_claim(cluster)
    add_class(cluster)
    assert cluster.feasible(theirs()) == " ".join(NODES)
    add_class(cluster, terms=(SelectorTerm(select_labels(zone="a")),))
    assert cluster.feasible(theirs()) == "n0 n2"
    add_volume(cluster, "v3", "n3")
    assert cluster.feasible(theirs()) == "n0 n2 n3"
    add_class(cluster, terms=(SelectorTerm(),))
    assert cluster.feasible(theirs()) == "n3"


def test_a_pod_without_a_node_for_its_claim_says_so() -> None:
    cluster = make_nodes()
    add_class(cluster, is_static=True)
    add_claim(cluster)
    reason = cluster.plan(make_unit("u", (theirs(),))).refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    assert [(one.cause, one.nodes) for one in reason.refused] == [
        (NodeCause.VOLUME_AFFINITY, 4),
    ]


def test_a_volume_that_appears_is_a_change_of_the_claims_that_may_get_it() -> None:
    cluster = make_nodes()
    add_class(cluster, is_static=True)
    add_claim(cluster)
    feed = cluster.state.feed()
    feed.drain()
    add_volume(cluster, "v", "n0")
    assert feed.drain().claims == {"default/c"}
    remove_volume(cluster.state, "v")
    assert feed.drain().claims == {"default/c"}


@pytest.mark.parametrize("has_volume", [False, True])
def test_nothing_starts_together_with_a_claim_that_is_bound_late(*, has_volume: bool) -> None:
    cluster = make_nodes()
    add_class(cluster, is_static=True)
    add_claim(cluster)
    if has_volume:
        add_volume(cluster, "v3", "n3")
    pods = (theirs("p0"), make_pod("p1").handling(Handling.RELEASE_PINNED))
    outcome = cluster.plan(make_unit("g", pods))
    assert not outcome.placements
    claim = LateClaim("default/c", "late")
    assert outcome.refusals[0].reason == PlacementUnknown("default/p0", (FIELD,), (claim,), 2)
    upsert_claim(cluster.state, VolumeClaim("default/c", "v3", is_bound=True))
    upsert_volume(cluster.state, Volume("v3", on("n3")))
    assert nodes_of(cluster.plan(make_unit("g", pods)))["p0"] == "n3"


def test_nothing_starts_together_with_a_resource_claim() -> None:
    field = "spec.resourceClaims"
    pods = (
        make_pod("p0").handling(Handling.RELEASE_PINNED).needs_kube_scheduler(field),
        make_pod("p1"),
    )
    cluster = make_nodes()
    outcome = cluster.plan(make_unit("g", pods))
    assert [one.reason for one in outcome.refusals] == [
        PlacementUnknown("default/p0", (field,), members=2)
    ]
    assert cluster.plan(make_unit("g", pods, required=1)).placements
    text = outcome.refusals[0].reason.text()
    assert "spec.resourceClaims of default/p0" in text
    assert "2 members" in text


def test_what_only_kube_scheduler_knows_is_not_pinned() -> None:
    field = "spec.resourceClaims"
    pod = make_pod("p").handling(Handling.RELEASE_PINNED).needs_kube_scheduler(field)
    plain = make_pod("q").handling(Handling.RELEASE_PINNED)
    outcome = make_nodes().plan(make_unit("u", (pod, plain), required=1))
    found = {one.pod.name: one.is_open for one in outcome.placements[0].assignments}
    assert found == {"p": True, "q": False}


SORTS = st.sampled_from(("plain", "bound", "static", "made", "proven", "resource"))


@given(
    sorts=st.lists(SORTS, min_size=1, max_size=4),
    minimum=st.integers(1, 4),
    volumes=st.lists(st.sampled_from(NODES), max_size=3),
)
def test_no_unit_is_released_that_may_start_in_part(
    sorts: list[str], minimum: int, volumes: list[str]
) -> None:
    cluster = make_nodes()
    add_class(cluster, is_static=True)
    upsert_storage_class(cluster.state, StorageClass("made", is_delayed=True))
    proven = StorageClass("proven", is_delayed=True, provisioner="csi.example.com")
    upsert_storage_class(cluster.state, proven)
    upsert_volume(cluster.state, Volume("bound", on("n1"), provisioner="csi.example.com"))
    pods = []
    for at, sort in enumerate(sorts):
        pod = make_pod(f"p{at}").handling(Handling.RELEASE_PINNED)
        key = f"default/c{at}"
        if sort == "bound":
            upsert_claim(cluster.state, VolumeClaim(key, "bound", is_bound=True))
        elif sort == "static":
            add_claim(cluster, f"c{at}")
        elif sort in {"made", "proven"}:
            upsert_claim(cluster.state, VolumeClaim(key, storage_class=sort))
        is_plain = sort in {"plain", "resource"}
        pod = pod if is_plain else pod.claims(f"c{at}")
        pods.append(pod.needs_kube_scheduler("x") if sort == "resource" else pod)
    for at, node in enumerate(volumes):
        add_volume(cluster, f"v{at}", node)
    required = min(minimum, len(pods))
    outcome = cluster.plan(make_unit("g", tuple(pods), required=required))
    placed = nodes_of(outcome) if outcome.placements else {}
    unknown = [f"p{at}" for at, sort in enumerate(sorts) if sort in {"static", "made", "resource"}]
    if required > 1:
        assert bool(placed) is not bool(unknown)
    for at, sort in enumerate(sorts):
        if sort == "static" and f"p{at}" in placed:
            assert placed[f"p{at}"] in volumes


class TestClaimsThatCanBeServed:
    """A gang starts if every node that is planned for a late claim can serve it."""

    def test_a_volume_is_kept_for_the_claim(self) -> None:
        cluster = make_nodes()
        add_class(cluster, is_static=True)
        add_claim(cluster)
        add_volume(cluster, "v3", "n3", claim="c")
        pods = (theirs("p"), make_pod("q"))
        assert nodes_of(cluster.plan(make_unit("u", pods)))["p"] == "n3"
        add_volume(cluster, "v3", "n3", size=1, claim="c")
        assert cluster.plan(make_unit("u", pods)).refusals

    def test_one_will_be_made_by_who_has_made_others(self) -> None:
        cluster = make_nodes().gang("g", 2, gpus=0)
        zone_b = (SelectorTerm(select_labels(zone="b")),)
        add_class(cluster, provisioner="csi.example.com", terms=zone_b)
        add_claim(cluster)
        pods = (theirs("p").gang("default/h"), make_pod("q").gang("default/h"))
        cluster.pod_groups(make_pod_group("default/h", 2)).pods(*pods)
        assert cluster.step() == ["g-0", "g-1"]
        assert isinstance(cluster.reason(), PlacementUnknown)
        other = Volume("other", provisioner="csi.example.com")
        upsert_volume(cluster.state, other)
        assert sorted(cluster.step()) == ["p", "q"]
        assert cluster.state.pod_by_key("default/p").planned_node in {"n1", "n3"}

    def test_not_for_a_claim_that_several_use(self) -> None:
        cluster = make_nodes()
        add_class(cluster, provisioner="csi.example.com")
        add_claim(cluster)
        upsert_volume(cluster.state, Volume("other", provisioner="csi.example.com"))
        assert cluster.plan(make_unit("u", (theirs("p"), theirs("q")))).refusals
        assert cluster.plan(make_unit("u", (theirs("p"), make_pod("q")))).placements
        remove_volume(cluster.state, "other")
        assert cluster.plan(make_unit("u", (theirs("p"), make_pod("q")))).refusals


def test_a_gang_of_ours_is_told_what_to_do_about_a_late_claim() -> None:
    cluster = make_nodes()
    add_class(cluster)
    add_claim(cluster)
    reason = cluster.plan(make_unit("g", (make_pod("p0").claims("c"), make_pod("p1")))).refusals[0]
    text = reason.reason.text()
    assert text.endswith(
        "default/c of StorageClass late, bound with its first pod; 2 members have to start "
        "together: let a pod of its own use default/c once, which binds the volume, or use a "
        "StorageClass with volumeBindingMode Immediate"
    )
    assert "default-scheduler" not in text
