"""Reads the cluster and prints usage: ``koord top`` and ``koord explain node/…``.

Not imported for ``--help``.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from koord.answers.encoding import encode
from koord.answers.gaps import head_of, list_warnings
from koord.answers.leaders import describe_absence
from koord.answers.quota_view import QuotaView, make_overview, view_quotas
from koord.answers.reading import Reading
from koord.answers.usage_view import NodeUsage, PodUsage, view_nodes, view_pod
from koord.cli.cluster import read_without_target, refuse_gap, refuse_gaps, refuse_unknown_namespace
from koord.cli.colocation_view import draw_offer, find_offer
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.output import make_table, print_in
from koord.core.model.device_names import CARDS
from koord.core.model.text import named, suggest
from koord.core.model.units import CPU, MEMORY, Amounts, approximate
from koord.domains.placement import NODES
from koord.domains.quota import QUOTAS
from koord.kube.kind import AnyKind

_MOST_PODS: Final = 20


def show_nodes(namespace: str, kubeconfig: str, context: str, *, output: Output) -> None:
    reading = _read(kubeconfig, context, NODES)
    refuse_unknown_namespace(reading, namespace)
    nodes = view_nodes(reading.state)
    shown = [
        node_usage
        for node_usage in nodes
        if not namespace or namespace in {pod.namespace for pod in node_usage.pods}
    ]
    print_in(
        output,
        head_of("Nodes", reading),
        document=lambda: {"nodes": encode(shown)},
        names=lambda: (f"node/{node_usage.node.name}" for node_usage in shown),
        text=lambda: draw_nodes(shown, is_wide=output is Output.WIDE),
    )


def show_node(name: str, kubeconfig: str, context: str, *, output: Output) -> None:
    reading = _read(kubeconfig, context, NODES)
    nodes = {view_node.node.name: view_node for view_node in view_nodes(reading.state)}
    node_usage = nodes.get(name)
    if node_usage is None:
        fail(f"there is no node {name}{suggest(name, nodes)}", ExitCode.USAGE)
    pods = [view_pod(reading.state, pod) for pod in node_usage.pods]
    offer = find_offer(reading.state, name, kubeconfig, context)
    print_in(
        output,
        head_of("Node", reading),
        document=lambda: {
            **encode(node_usage),
            "pods": encode(pods),
            **({} if offer is None else {"offer": encode(offer)}),
        },
        names=lambda: (f"node/{name}",),
        text=lambda: (
            *draw_node(node_usage, pods, is_wide=output is Output.WIDE),
            *(() if offer is None else draw_offer(offer)),
        ),
    )


def show_quotas(namespace: str, kubeconfig: str, context: str, *, output: Output) -> None:
    reading, target = read_without_target(kubeconfig, context, namespace)
    reported = reading.reported_quotas
    if reported is None:
        refuse_gap(reading, QUOTAS)
    for warning in list_warnings(reading, target):
        warn(warning)
    refuse_unknown_namespace(reading, namespace)
    quotas = (view_quotas(reading.state) if reported is None else make_overview(reported)).quotas
    shown = [view for view in quotas if namespace in {"", view.namespace}]
    print_in(
        output,
        head_of("QuotaUse", reading, target),
        document=lambda: {"quotas": encode(shown)},
        names=lambda: (f"elasticquota/{view.summary.name}" for view in shown),
        text=lambda: draw_quotas(shown),
    )


def _read(kubeconfig: str, context: str, shown: AnyKind) -> Reading:
    reading, _ = read_without_target(kubeconfig, context)
    refuse_gaps(reading, shown)
    for warning in describe_absence(reading.leader):
        warn(warning)
    reading.state.refresh()
    return reading


def draw_nodes(shown: Sequence[NodeUsage], *, is_wide: bool) -> Iterator[RenderableType]:
    if not shown:
        yield "There are no nodes."
        return
    wide = ("TAINTS",) if is_wide else ()
    table = make_table(
        "NODE", "STATE", "GPUS", "CPU", "MEMORY", "PODS", "TENANTS", *wide,
        right=("GPUS", "CPU", "MEMORY", "PODS"),
        padding=2,
    )  # fmt: skip
    for node_usage in shown:
        most = node_usage.node.allocatable
        cards, taken = (sum(of.get(key, 0) for key in CARDS) for of in (most, node_usage.used))
        table.add_row(
            node_usage.node.name,
            Text(node_usage.state, "" if node_usage.state == "Ready" else "yellow"),
            f"{taken}/{cards}" if cards else "",
            _part(CPU, node_usage.used, most),
            _part(MEMORY, node_usage.used, most),
            str(len(node_usage.pods)),
            named(node_usage.tenants),
            *((named([taint.key for taint in node_usage.node.taints]),) if is_wide else ()),
        )
    yield table


def draw_node(
    node_usage: NodeUsage, pods: Sequence[PodUsage], *, is_wide: bool
) -> Iterator[RenderableType]:
    yield Text.assemble((f"Node {node_usage.node.name} ", "bold"), node_usage.state)
    for taint in node_usage.node.taints:
        yield f"  taint {taint.key}={taint.value}:{taint.effect}"
    numbers = ("ALLOCATABLE", "USED", "FREE")
    table = make_table("RESOURCE", *numbers, right=numbers)
    for key, most in sorted(node_usage.node.allocatable.items()):
        used = node_usage.used.get(key, 0)
        table.add_row(key, *(approximate(key, amount) for amount in (most, used, most - used)))
    yield table
    if not pods:
        yield "No pod uses it."
        return
    listed = make_table("POD", "PODGROUP", "QUOTA", "GPUS", "PHASE", right=("GPUS",))
    by_size = sorted(pods, key=lambda pod: (-pod.gpus, pod.pod))
    for pod in by_size if is_wide else by_size[:_MOST_PODS]:
        phase = "Terminating" if pod.is_terminating else pod.phase
        listed.add_row(pod.pod, pod.pod_group or "", pod.quota or "", str(pod.gpus), phase)
    yield listed
    if not is_wide and len(pods) > _MOST_PODS:
        yield f"… and {len(pods) - _MOST_PODS} more pods (-o wide lists them)"


def draw_quotas(shown: Sequence[QuotaView]) -> Iterator[RenderableType]:
    if not shown:
        yield "There are no quotas."
        return
    table = make_table(
        "QUOTA", "RESOURCE", "USED", "ENTITLED", "GUARANTEED", "DEMAND", "STATE",
        right=("USED", "ENTITLED", "GUARANTEED", "DEMAND"),
        padding=2,
    )  # fmt: skip
    for view in shown:
        summary = view.summary
        name = f"{'  ' * view.depth}{summary.name}"
        key = view.scarcest
        amounts = (summary.used, summary.share, summary.guarantee(), summary.child_request)
        numbers = [approximate(key, of.get(key, 0)) for of in amounts] if key else [""] * 4
        table.add_row(name, key, *numbers, view.state)
    yield table


def _part(key: str, used: Amounts, most: Amounts) -> str:
    whole = most.get(key, 0)
    return f"{100 * used.get(key, 0) // whole}%" if whole else ""
