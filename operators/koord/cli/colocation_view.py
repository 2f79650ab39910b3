"""Reads the cluster and prints what nodes offer to batch and mid pods, alone or with their use.

Not imported for ``--help``.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.text import Text

from koord.answers.colocation import (
    ExplainedNode,
    ExplainedResource,
    ExplainedZone,
    explain_node,
    explain_nodes,
)
from koord.answers.encoding import encode
from koord.answers.gaps import head_of
from koord.answers.reading import Reading, Target, TargetKind
from koord.api.slo_config import NAME, NAMESPACE
from koord.cli.cluster import read_cluster, refuse_gaps
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.connection import open_client
from koord.cli.output import make_table, print_in
from koord.core.colocation.formula import PUBLISHED
from koord.core.engine.state import ClusterState
from koord.core.load.plugin import Loads
from koord.core.model.text import suggest
from koord.core.model.units import CPU, approximate, format_amount
from koord.domains.colocation import COLOCATION_POLICIES
from koord.domains.placement import NODES, PODS
from koord.domains.slo_config import SLO_CONFIGS
from koord.kube.client import Client
from koord.kube.errors import Forbidden, KubeError, NotFound
from koord.kube.kind import TranslatorOptions
from koord.kube.load_metrics import fetch_metrics
from koord.kube.wire import ObjectList, WireConfigMap, WireCustomResource

_CONFIG_MAP: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"
_SECONDS: Final = 30.0
"""Between two reports of metrics.k8s.io, for an answer."""


def show_nodes(kubeconfig: str, context: str, *, output: Output) -> None:
    reading = _read_or_fail(kubeconfig, context)
    nodes = explain_nodes(reading.state, time.time())
    print_in(
        output,
        head_of("Colocation", reading),
        document=lambda: {"nodes": encode(nodes)},
        names=lambda: (f"node/{node.node}" for node in nodes),
        text=lambda: _draw_nodes(nodes),
    )


def show_node(name: str, kubeconfig: str, context: str, *, output: Output) -> None:
    reading = _read_or_fail(kubeconfig, context)
    node = explain_node(reading.state, name, time.time())
    if node is None:
        names = list(reading.state.table.row_of)
        fail(f"there is no node {name}{suggest(name, names)}", ExitCode.USAGE)
    print_in(
        output,
        head_of("NodeColocation", reading),
        document=lambda: encode(node),
        names=lambda: (f"node/{name}",),
        text=lambda: draw_offer(node),
    )


def _read_or_fail(kubeconfig: str, context: str) -> Reading:
    try:
        reading = asyncio.run(_read(kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    refuse_gaps(reading, NODES, PODS)
    return reading


async def _read(kubeconfig: str, context: str) -> Reading:
    async with open_client(kubeconfig, context) as (client, access):
        reading = await read_cluster(client, Target(TargetKind.POD, access.namespace, ""))
        await _read_settings(client, reading.state)
        await _read_metrics(client, reading.state)
        return reading


def find_offer(
    state: ClusterState, name: str, kubeconfig: str, context: str
) -> ExplainedNode | None:
    """Return what a node of a cluster that was read offers; None if it is not to offer anything.

    Settings that may not be read count as none: who asks for a node may have no right to them.
    """
    with suppress(KubeError):
        return asyncio.run(_find_offer(state, name, kubeconfig, context))
    return None


async def _find_offer(
    state: ClusterState, name: str, kubeconfig: str, context: str
) -> ExplainedNode | None:
    async with open_client(kubeconfig, context) as (client, _):
        await _read_settings(client, state, tell=lambda _: None)
        offer = explain_node(state, name, time.time())
        if offer is None or not offer.is_meant:
            return None
        await _read_metrics(client, state)
        return explain_node(state, name, time.time())


async def _read_settings(
    client: Client, state: ClusterState, tell: Callable[[str], None] = warn
) -> None:
    translator = COLOCATION_POLICIES.make_translator(TranslatorOptions())
    try:
        body = await client.list(COLOCATION_POLICIES.path)
        for wire in msgspec.json.decode(body, type=ObjectList[WireCustomResource]).items or ():
            COLOCATION_POLICIES.upsert(state, translator.translate(wire))
    except NotFound:
        pass  # its CRD is not installed
    except Forbidden:
        tell("you may not list ColocationPolicies: nodes may offer something else")
    try:
        config = await client.get(_CONFIG_MAP, WireConfigMap)
    except NotFound:
        return
    except Forbidden:
        tell(f"you may not read the ConfigMap {NAMESPACE}/{NAME}: nodes may offer something else")
        return
    translated = SLO_CONFIGS.make_translator(TranslatorOptions()).translate(config)
    SLO_CONFIGS.upsert(state, translated)
    for texts in (*translated.problems.values(), *translated.unknown.values()):
        tell(f"ConfigMap {NAMESPACE}/{NAME}: {'; '.join(texts)}")


async def _read_metrics(client: Client, state: ClusterState) -> None:
    """Read what nodes use from metrics.k8s.io where no NodeMetric says it."""
    loads = state.plugin(Loads)
    if not loads.lacks(state.table.row_of):
        return

    def node_of(key: str) -> str:
        pod = state.pod_by_key(key)
        return "" if pod is None else pod.node

    with suppress(KubeError):
        for report in (await fetch_metrics(client, node_of, _SECONDS)).values():
            loads.upsert(report)


def _draw_nodes(nodes: Sequence[ExplainedNode]) -> Iterator[RenderableType]:
    if not nodes:
        yield "There are no nodes."
        return
    heads = [name.partition("/")[2].upper() for name in PUBLISHED]
    table = make_table("NODE", "STATE", *heads, right=heads, padding=2)
    for node in nodes:
        amounts = {each.resource: each.amount for each in node.resources}
        cells = (_format(name, amounts[name]) if name in amounts else "" for name in PUBLISHED)
        table.add_row(node.node, node.state, *cells)
    yield table


def draw_offer(node: ExplainedNode) -> Iterator[RenderableType]:
    yield Text.assemble((f"Node {node.node} ", "bold"), node.state)
    if node.sources:
        yield f"  settings: {', over '.join(node.sources)}"
    for name in node.ignored:
        yield f"  {name} selects it, too, and does not count"
    for problem in node.problems:
        yield f"  ignored: {problem}"
    if node.reason:
        yield f"  {node.reason}"
    for each in node.resources:
        yield from _draw_resource(each)
    if node.zones:
        yield _draw_zones(node.zones)


def _draw_zones(zones: Sequence[ExplainedZone]) -> RenderableType:
    names = [each.resource for each in zones[0].resources]
    heads = [name.partition("/")[2].upper() for name in names]
    table = make_table("NUMA NODE, NOT PUBLISHED", *heads, right=heads)
    for zone in zones:
        cells = (_format(each.resource, each.amount) for each in zone.resources)
        table.add_row(f"  {zone.number}", *cells)
    return table


def _draw_resource(each: ExplainedResource) -> Iterator[RenderableType]:
    table = make_table(each.resource, "AMOUNT", right=("AMOUNT",))
    for term in each.terms:
        table.add_row(f"  {term.text}", f"{term.amount:+}")
    table.add_row("  offered", str(each.amount))
    published = "not published" if each.published is None else str(each.published)
    table.add_row("  published now", published)
    yield table


def _format(resource: str, amount: int) -> str:
    if resource.endswith("-cpu"):
        return format_amount(CPU, amount)
    return approximate(resource, amount, down=True)
