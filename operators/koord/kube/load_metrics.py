"""Asks ``metrics.k8s.io`` what nodes and pods use, for nodes about which no NodeMetric reports.

One list of each per round, of which nothing is kept but the numbers. A pod or node whose use is
missing or impossible is left out, and costs no other its report. Who has the last word about a
node, and whether a report is too old, is decided elsewhere.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final, NoReturn

import msgspec
from msgspec import Struct

from koord.api.quantity import parse_duration_seconds
from koord.core.load.model import LoadSource, NodeLoad, PodLoad
from koord.core.load.plugin import Loads
from koord.core.model.units import Amounts
from koord.kube.client import Client
from koord.kube.decode import MALFORMED
from koord.kube.errors import Garbled, KubeError, NotFound
from koord.kube.translate.amounts import parse_usage

log = logging.getLogger(__name__)

NODES_PATH: Final = "/apis/metrics.k8s.io/v1beta1/nodes"
PODS_PATH: Final = "/apis/metrics.k8s.io/v1beta1/pods"
MAX_BYTES: Final = 128 << 20
"""A larger answer is not read: 50,000 pods are a fifth of it."""
DEFAULT_WINDOW: Final = 15.0
_FIRST_SECONDS: Final = 10.0
"""How long the first round may take, for which others wait."""


class _Meta(Struct, gc=False):
    name: str = ""
    namespace: str = ""


class _NodeMetrics(Struct, gc=False):
    metadata: _Meta
    timestamp: datetime | None = None
    window: str | None = None
    usage: dict[str, str | int] | None = None


class _ContainerMetrics(Struct, gc=False):
    usage: dict[str, str | int] | None = None


class _PodMetrics(Struct, gc=False):
    metadata: _Meta
    containers: list[_ContainerMetrics] | None = None
    """Null where nothing of a pod is measured yet: servers in Go write it so."""


class _NodeMetricsList(Struct, gc=False):
    items: list[_NodeMetrics] | None = None


class _PodMetricsList(Struct, gc=False):
    items: list[_PodMetrics] | None = None


_nodes_decoder: Final = msgspec.json.Decoder(_NodeMetricsList)
_pods_decoder: Final = msgspec.json.Decoder(_PodMetricsList)


class MetricsPoller:
    """Keeps the reports of one source current.

    ``nodes`` returns the names of all nodes, ``node_of`` where a pod (``namespace/name``) is, and
    ``notify`` is called after every round that was answered.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        client: Client,
        loads: Loads,
        *,
        nodes: Callable[[], Iterable[str]],
        node_of: Callable[[str], str],
        notify: Callable[[], None],
        interval: float,
    ) -> None:
        self.has_asked = False
        """Whether there was a first round, answered or not: until then all nodes look idle."""
        self.problem = ""
        """Why the last round brought nothing; empty if it did, or if nothing was missing."""
        self._client = client
        self._loads = loads
        self._nodes = nodes
        self._node_of = node_of
        self._notify = notify
        self._interval = interval

    async def run(self) -> NoReturn:
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await self.poll()
        except TimeoutError:
            self._note("metrics.k8s.io does not answer")
        self.has_asked = True
        self._notify()
        while True:
            await asyncio.sleep(self._interval)
            await self.poll()

    async def poll(self) -> None:
        """Ask once, if there are nodes that nothing else reports about."""
        if not self._loads.lacks(self._nodes()):
            self.problem = ""
            return
        try:
            reports = await fetch_metrics(self._client, self._node_of, self._interval)
        except NotFound:
            reports, nodes = {}, set[str]()
            self._note("metrics.k8s.io is not served")
        except KubeError as error:
            self._note(str(error))  # what is known gets old by itself
            return
        else:
            nodes = set(self._nodes())
            self.problem = ""
        for report in self._loads.of_source(LoadSource.METRICS_API):
            if report.node not in reports and report.node not in nodes:
                self._loads.remove(report)  # others get old by themselves
        for report in reports.values():
            self._loads.upsert(report)
        self._notify()

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("What nodes use is not known", extra={"problem": problem})
        self.problem = problem


async def fetch_metrics(
    client: Client, node_of: Callable[[str], str], interval: float
) -> dict[str, NodeLoad]:
    """Ask once; return a report about each node. Raises ``KubeError``."""
    nodes = await client.list(NODES_PATH)
    pods = await client.list(PODS_PATH)
    return read_metrics(nodes, pods, node_of, interval)


def read_metrics(
    nodes: bytes, pods: bytes, node_of: Callable[[str], str], interval: float
) -> dict[str, NodeLoad]:
    """Return a report about each node. Raises ``Garbled`` for what is no such list."""
    if len(nodes) + len(pods) > MAX_BYTES:
        raise Garbled(f"metrics.k8s.io sent more than {MAX_BYTES} bytes")
    try:
        listed, pods_listed = _nodes_decoder.decode(nodes).items, _pods_decoder.decode(pods).items
        by_node: dict[str, dict[str, PodLoad]] = {}
        for pod in pods_listed or ():
            key = f"{pod.metadata.namespace}/{pod.metadata.name}"
            with suppress(ValueError):
                usage = _add_up(_read(container.usage) for container in pod.containers or ())
                by_node.setdefault(node_of(key), {})[key] = PodLoad(usage)
        reports = {}
        for node in listed or ():
            name = node.metadata.name
            with suppress(ValueError):
                reports[name] = _report(node, by_node.get(name, {}), interval)
    except MALFORMED as error:
        raise Garbled(f"cannot decode what metrics.k8s.io sent: {error}") from error
    return reports


def _report(node: _NodeMetrics, pods: dict[str, PodLoad], interval: float) -> NodeLoad:
    usage = _read(node.usage)
    of_pods = _add_up(pod.usage for pod in pods.values())
    window = float(parse_duration_seconds(node.window or "") or DEFAULT_WINDOW)
    return NodeLoad(
        node.metadata.name,
        LoadSource.METRICS_API,
        node.timestamp.timestamp() if node.timestamp else 0.0,
        max(window, interval),
        window,
        is_reported=bool(usage),
        is_readable=bool(usage),
        usage=usage,
        system={name: max(0, amount - of_pods.get(name, 0)) for name, amount in usage.items()},
        pods=pods,
    )


def _read(quantities: Mapping[str, str | int] | None) -> Amounts:
    return {name: parse_usage(name, text) for name, text in (quantities or {}).items()}


def _add_up(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total
