"""The details of a refusal by a node: the other pod, the skew or the claim."""

import pytest
from tests.builders import PodBuilder, make_node, make_pod, select_labels, select_pods
from tests.cluster import SCORING, FakeCluster, make_cluster
from tests.objects import upsert_claim, upsert_volume

from koord.answers.explain import explain_pod
from koord.core.model.constraints import PodSelector
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm
from koord.core.plugins.volumes import Volume, VolumeClaim

ZONE = "topology.kubernetes.io/zone"
WEB, DB = select_pods(app="web"), select_pods(app="db")
TIERS = PodSelector(
    (
        Requirement("app", SelectorOperator.IN, ("a", "b")),
        Requirement("tier", SelectorOperator.EXISTS),
        Requirement("x", SelectorOperator.DOES_NOT_EXIST),
        Requirement("y", SelectorOperator.NOT_IN, ("1",)),
    ),
    ("default",),
)


def make_zones() -> FakeCluster:
    """Zone a has two ``web`` pods, zone b one with anti-affinity to ``db``; ``out`` has no zone."""
    cluster = make_cluster()
    for name, zone in {"a1": "a", "a2": "a", "b1": "b"}.items():
        cluster.nodes(make_node(name).label("zone", zone).label(ZONE, zone))
    cluster.nodes(make_node("out").taint("team", "x"))
    for at, node in enumerate(("a1", "a2")):
        cluster.pods(make_pod(f"w{at}").labels(app="web").running(node))
    cluster.pods(make_pod("shy").apart(DB).claims("taken").running("b1"))
    for name, volume, exclusive in (
        ("bound", Volume("v", (SelectorTerm(select_labels(zone="a")),)), False),
        ("zonal", Volume("z", zones=((ZONE, ("a",)),)), False),
        ("taken", Volume("t"), True),
    ):
        key = f"default/{name}"
        upsert_claim(
            cluster.state, VolumeClaim(key, volume.name, is_bound=True, is_exclusive=exclusive)
        )
        upsert_volume(cluster.state, volume)
    return cluster


def web() -> PodBuilder:
    return make_pod("p").labels(app="web").tolerates("team", operator="Exists")


@pytest.mark.parametrize(
    ("pod", "node", "expected"),
    [
        (make_pod("p"), "out", "UntoleratedTaint: team: x"),
        (
            web().spread(WEB),
            "a2",
            "PodTopologySpread: zone=a has 2 of app=web, 0 in the emptiest, maxSkew 1",
        ),
        (
            web().spread(WEB, skew=2, min_domains=3),
            "a1",
            "PodTopologySpread: zone=a has 2 of app=web, 2 of 3 domains (minDomains), maxSkew 2",
        ),
        (web().spread(WEB), "out", "PodTopologySpreadLabel: no label zone"),
        (web().near(DB), "a1", "PodAffinity: zone=a has none of app=db"),
        (web().near(DB), "out", "PodAffinity: no label zone"),
        (web().near(WEB).near(DB), "a1", "PodAffinity: zone=a has none of app=web and app=db"),
        (
            web().near(TIERS),
            "a1",
            "PodAffinity: zone=a has none of app in (a,b),tier,!x,y notin (1)",
        ),
        (web().near(select_pods()), "out", "PodAffinity: no label zone"),
        (web().apart(WEB), "a2", "PodAntiAffinity: default/w0 on zone=a"),
        (web().apart(WEB), "b1", "None: "),
        (web().labels(app="db"), "b1", "ExistingPodAntiAffinity: default/shy on zone=b"),
        (web().claims("bound"), "b1", "VolumeBinding: v of default/bound"),
        (web().claims("zonal"), "b1", "VolumeZone: z of default/zonal is in a"),
        (web().claims("taken"), "a1", "VolumeRestrictions: default/taken by default/shy"),
    ],
)
def test_detail_of_a_refusal(pod: PodBuilder, node: str, expected: str) -> None:
    cluster = make_zones()
    subject = pod.build()
    cluster.pods(subject)
    (offers,) = explain_pod(cluster.state, subject, SCORING).offers
    (offer,) = (one for one in offers.nodes if one.node == node)
    refusal = offer.cause or None
    assert f"{refusal}: {offer.detail}" == expected
