"""The use of nodes as ``metrics.k8s.io`` has it: recorded bodies, and a stand-in for the client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from koord.core.load.model import LoadSource, NodeLoad, PodLoad
from koord.core.load.plugin import Loads
from koord.kube.errors import Forbidden, Garbled, KubeError, NotFound
from koord.kube.load_metrics import NODES_PATH, PODS_PATH, MetricsPoller, read_metrics

if TYPE_CHECKING:
    from koord.kube.client import Client

NODES = b"""{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},
"items":[{"metadata":{"name":"n0","creationTimestamp":"2026-01-01T00:00:30Z",
"labels":{"kubernetes.io/hostname":"n0"}},"timestamp":"1970-01-01T00:16:40Z","window":"15.042s",
"usage":{"cpu":"1234567890n","memory":"2097152Ki"}}]}"""
PODS = b"""{"kind":"PodMetricsList","items":[{"metadata":{"name":"p","namespace":"a"},
"timestamp":"1970-01-01T00:16:40Z","window":"15s","containers":[
{"name":"c","usage":{"cpu":"200m","memory":"1Mi"}},{"name":"d","usage":{"cpu":"34m"}}]},
{"metadata":{"name":"elsewhere","namespace":"a"},"containers":[]}]}"""
REPORT = NodeLoad(
    "n0",
    LoadSource.METRICS_API,
    updated=1000.0,
    interval=60.0,
    window=16.0,
    usage={"cpu": 1235, "memory": 2 << 30},
    system={"cpu": 1001, "memory": (2 << 30) - (1 << 20)},
    pods={"a/p": PodLoad({"cpu": 234, "memory": 1 << 20})},
)


class StandIn:
    """Answers as an API server would that serves these metrics."""

    def __init__(self, *answers: dict[str, bytes | KubeError]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def list(self, path: str) -> bytes:
        self.asked += 1
        answer = self.answers[0][path]
        if path == PODS_PATH or isinstance(answer, KubeError):
            self.answers.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer


SERVED: dict[str, bytes | KubeError] = {NODES_PATH: NODES, PODS_PATH: PODS}


def poller_of(stand_in: StandIn, loads: Loads) -> tuple[MetricsPoller, list[int]]:
    rounds: list[int] = []
    nodes = {"a/p": "n0"}
    poller = MetricsPoller(
        cast("Client", stand_in),
        loads,
        nodes=lambda: ["n0"],
        node_of=lambda key: nodes.get(key, ""),
        notify=lambda: rounds.append(1),
        interval=60.0,
    )
    return poller, rounds


def test_use_of_nodes_is_that_of_their_pods_and_what_is_left() -> None:
    reports = read_metrics(NODES, PODS, {"a/p": "n0"}.get, 60.0)  # type: ignore[arg-type]
    assert reports == {"n0": REPORT}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"items":[{"metadata":{},"usage":{"cpu":[]}}]}'])
def test_what_is_no_such_list_is_garbled(body: bytes) -> None:
    with pytest.raises(Garbled):
        read_metrics(body, PODS, lambda _: "", 60.0)


def test_what_is_null_costs_nobody_a_report() -> None:
    null = b'{"metadata":{"name":"p","namespace":"a"},"containers":null}'
    empty = PODS.replace(b'{"metadata":{"name":"elsewhere","namespace":"a"},"containers":[]}', null)
    reports = read_metrics(NODES, empty, lambda _: "n0", 60.0)
    assert reports["n0"].usage == REPORT.usage
    usage = b'{"cpu":"1234567890n","memory":"2097152Ki"}'
    unknown = read_metrics(NODES.replace(usage, b"null"), PODS, lambda _: "n0", 60.0)["n0"]
    assert not unknown.is_reported, "it would look idle"
    assert read_metrics(b'{"items":null}', b'{"items":null}', lambda _: "", 60.0) == {}


def test_reports_are_replaced_and_end_where_nothing_is_served() -> None:
    loads = Loads()
    gone = {NODES_PATH: NotFound(404, "NotFound", "no such API"), PODS_PATH: b""}
    stand_in = StandIn(SERVED, gone)
    poller, rounds = poller_of(stand_in, loads)
    asyncio.run(poller.poll())
    assert loads.of("n0") == REPORT
    asyncio.run(poller.poll())
    assert loads.of("n0") is None
    assert poller.problem == "metrics.k8s.io is not served"
    assert len(rounds) == 2


def test_what_is_known_stays_while_the_server_does_not_answer() -> None:
    loads = Loads()
    refused = {NODES_PATH: Forbidden(403, "Forbidden", "no right"), PODS_PATH: b""}
    poller, _ = poller_of(StandIn(SERVED, refused), loads)
    asyncio.run(poller.poll())
    asyncio.run(poller.poll())
    assert loads.of("n0") == REPORT
    assert "no right" in poller.problem


@pytest.mark.parametrize("nodes", [b'{"items":[]}', NODES.replace(b"1234567890n", b"-1")])
def test_what_is_known_stays_while_an_answer_leaves_a_node_out(nodes: bytes) -> None:
    loads = Loads()
    poller, _ = poller_of(StandIn(SERVED, {**SERVED, NODES_PATH: nodes}), loads)
    asyncio.run(poller.poll())
    asyncio.run(poller.poll())
    assert loads.of("n0") == REPORT


@pytest.mark.parametrize("answer", [SERVED, {NODES_PATH: NotFound(404, "NotFound", "none")}])
def test_there_was_a_first_round_whether_or_not_it_was_answered(answer: Any) -> None:
    async def ask() -> None:
        poller, rounds = poller_of(StandIn(answer), Loads())
        assert not poller.has_asked
        running = asyncio.create_task(poller.run())
        for _ in range(10):
            await asyncio.sleep(0)
        assert poller.has_asked
        assert rounds  # whoever waited for it looks again
        running.cancel()

    asyncio.run(ask())


def test_nobody_is_asked_where_agents_report_every_node() -> None:
    loads = Loads()
    loads.upsert(NodeLoad("n0"))
    stand_in = StandIn()
    poller, _ = poller_of(stand_in, loads)
    asyncio.run(poller.poll())
    assert stand_in.asked == 0
