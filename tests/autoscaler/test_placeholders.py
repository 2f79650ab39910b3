"""Pods without gate in place of members that lack nodes: when they come and go, what they say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster, make_cluster

from koord.api.keys import operators
from koord.controllers.scale_up import ScaleUpSignals
from koord.controllers.scale_up_placeholders import AGAIN_SECONDS, PlaceholderChannel
from koord.core.autoscaler.options import AutoscalerOptions, Signal
from koord.core.autoscaler.placeholders import ScaleUpPlaceholder
from koord.kube.errors import Forbidden
from koord.kube.scale_up_placeholders import NOBODY, make_placeholder

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

DELAY = 30.0


@dataclass
class Play:
    """A cluster, and the placeholders for its pods as the API server has them."""

    cluster: FakeCluster
    signal: Signal = Signal.PLACEHOLDER
    there: dict[str, ScaleUpPlaceholder] = field(default_factory=dict)
    writes: int = 0
    lists: int = 0
    refuses: bool = False
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start the process, again: it knows what the API server has."""
        self.signals = ScaleUpSignals(
            state=self.cluster.state,
            queue=self.cluster.queue,
            options=AutoscalerOptions(self.signal, DELAY),
            channels={Signal.PLACEHOLDER: PlaceholderChannel(self, self.cluster.state.assumed)},
            preempting={}.get,
            note=lambda *_: None,
            is_synced=lambda: True,
            clock=lambda: self.now,
        )

    async def list(self) -> list[ScaleUpPlaceholder]:
        self.lists += 1
        if self.refuses:
            raise Forbidden(403, "Forbidden", "no")
        return [ScaleUpPlaceholder(uid) for uid in self.there]

    async def put(self, pod: Pod, message: str) -> bool:
        assert message
        self.writes += 1
        self.there[pod.uid] = ScaleUpPlaceholder(pod.uid, pod.namespace)
        return True

    async def take_off(self, mark: ScaleUpPlaceholder) -> bool:
        self.writes += 1
        del self.there[mark.uid]
        return True

    async def after(self, seconds: float = 0.0) -> int:
        """Return how many there are after so long."""
        self.now += seconds
        self.cluster.state.advance(self.now)
        self.cluster.step()
        await self.signals.look()
        return len(self.there)


async def test_each_member_has_one_until_it_is_bound() -> None:
    play = Play(make_cluster(nodes=1).gang("train", 3))
    assert await play.after() == 0
    assert await play.after(DELAY - 1) == 0
    assert await play.after(1) == 3
    assert set(play.there) == {play.cluster.pod(f"train-{at}").uid for at in range(3)}
    play.cluster.nodes(*(make_node(f"new{at}").gpu(8) for at in range(2)))
    assert await play.after(1) == 3, "they are being bound"
    for at in range(3):
        play.cluster.pods(make_pod(f"train-{at}").gang("default/train").gpu(8).running(f"n{at}"))
    assert await play.after(1) == 0


async def test_a_restart_creates_none_again_and_deletes_those_that_nobody_needs() -> None:
    play = Play(make_cluster(nodes=1).gang("train", 3))
    await play.after()
    await play.after(DELAY)
    play.start()
    assert await play.after() == 3
    assert play.writes == 3
    play.signal = Signal.NONE
    play.start()
    assert await play.after() == 3, "they are read first"
    assert await play.after() == 0, "also when the signal is another one"


async def test_one_that_somebody_deletes_comes_back() -> None:
    play = Play(make_cluster(nodes=1).gang("train", 3))
    await play.after()
    await play.after(DELAY)
    play.there.popitem()
    assert await play.after(AGAIN_SECONDS) == 3


async def test_without_placeholders_nothing_is_read_and_without_the_right_once_a_minute() -> None:
    play = Play(make_cluster(nodes=1))
    for _ in range(5):
        await play.after(AGAIN_SECONDS)
    assert play.lists == 1
    play.refuses = True
    play.start()
    for _ in range(50):
        await play.after(1)
    assert play.lists == 2


def make_member(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "env": [{"name": "TOKEN", "value": "x"}], "command": ["sh"]}
    spec = {"containers": [container], "volumes": [{"name": "v"}], **spec}
    return {"metadata": {"labels": {"app": "train"}}, "spec": spec}


def test_it_has_what_decides_where_its_member_fits_and_nothing_else() -> None:
    pod = make_pod("train-0").gang("default/train").gpu(8).build()
    tolerations = [{"operator": "Exists"}]
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    seen = make_member(
        nodeSelector={"pool": "gpu"},
        tolerations=tolerations,
        affinity={"nodeAffinity": node_affinity, "podAffinity": {"x": []}},
        serviceAccountName="team",
        hostNetwork=True,
        priorityClassName="high",
        schedulingGates=[{"name": "g"}],
    )
    body = make_placeholder(pod, seen)
    spec = body["spec"]
    assert body["metadata"]["namespace"] == "koord-placeholders"
    assert body["metadata"]["name"] == f"koord-{pod.uid}"
    assert body["metadata"]["labels"].keys() == {operators.SCALE_UP}
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert spec["tolerations"] == tolerations
    assert spec["affinity"] == {"nodeAffinity": node_affinity}
    assert (spec["schedulerName"], spec["priorityClassName"]) == (NOBODY, NOBODY)
    others = ("nodeName", "volumes", "serviceAccountName", "hostNetwork", "schedulingGates")
    assert not set(others) & spec.keys()
    assert "env" not in spec["containers"][0]


def test_members_that_keep_apart_have_placeholders_that_do() -> None:
    pod = make_pod("train-0").gang("default/train").gpu(8).build()
    terms = [
        {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "train"}}},
        {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "other"}}},
        {
            "topologyKey": "zone",
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        },
        {"topologyKey": "area", "labelSelector": {}, "namespaces": ["else"]},
    ]
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    body = make_placeholder(pod, make_member(affinity={"podAntiAffinity": apart}))
    written = body["spec"]["affinity"]["podAntiAffinity"]
    said = written["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["topologyKey"] for term in said] == ["host", "zone"]
    assert all(
        term["labelSelector"] == {"matchLabels": body["metadata"]["labels"]} for term in said
    )
