"""Reads the cluster and prints what a round of a policy would do: what ``koord balance`` does.

Not imported for ``--help``.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import RenderableType
from rich.text import Text

from koord.answers.balance import BalanceView, LoadedNode, view_balance
from koord.answers.encoding import encode
from koord.answers.gaps import head_of
from koord.answers.reading import Reading, Target, TargetKind
from koord.api.rebalancepolicy import RebalancePolicy
from koord.cli.cluster import read_cluster, refuse_gaps
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.connection import open_client
from koord.cli.output import count_of, make_table, print_in
from koord.core.balance.outcome import HAS_JOB
from koord.core.balance.policy import BalancePolicy
from koord.core.eviction.model import Moment
from koord.core.eviction.rebalance import BalanceContext
from koord.core.model.text import suggest
from koord.domains.placement import NODES, PODS
from koord.kube.client import Client
from koord.kube.errors import Forbidden, KubeError, NotFound
from koord.kube.evictor import list_budgets
from koord.kube.migration_jobs import MigrationOrders, OrderedMoves
from koord.kube.translate.balance import read_rounds, translate_settings
from koord.kube.translate.policies import PolicyTranslator
from koord.kube.wire import ObjectList, WireCustomResource

if TYPE_CHECKING:
    from koord.core.model.budgets import Budget

_POLICIES: Final = f"/apis/{RebalancePolicy.names.api_version}/{RebalancePolicy.names.plural}"
_STOPS: Final = {
    "NoThresholds": "it has no thresholds",
    "NoHotNode": "no node is hot",
    "NotHotLongEnough": "no node has been hot for enough rounds yet",
    "NoLowNode": "no node is low",
    "TooFewLowNodes": "too few nodes are low",
    "AllNodesLow": "all nodes are low",
}


class _Read:
    """All that an answer needs."""

    def __init__(self) -> None:
        self.policies: list[BalancePolicy] = []
        self.statuses: dict[str, dict[str, Any]] = {}
        self.budgets: tuple[Budget, ...] = ()
        self.ordered = OrderedMoves()

    def find(self, name: str) -> BalancePolicy:
        """Return a policy, by default the oldest; end the command if there is none."""
        if not self.policies:
            fail("there is no RebalancePolicy", ExitCode.USAGE)
        if not name:
            return min(self.policies, key=lambda policy: (policy.created, policy.name))
        policy = next((policy for policy in self.policies if policy.name == name), None)
        if policy is None:
            names = [policy.name for policy in self.policies]
            fail(f"there is no RebalancePolicy {name}{suggest(name, names)}", ExitCode.USAGE)
        return policy


def show(name: str, kubeconfig: str, context: str, *, output: Output, is_dry_run: bool) -> None:
    try:
        reading, read = asyncio.run(_read(kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    refuse_gaps(reading, NODES, PODS)
    policy = read.find(name)
    if policy.settings is None:
        fail(f"RebalancePolicy {policy.name} has no valid settings", ExitCode.USAGE)
    min_runtime = reading.preemption.min_runtime if reading.preemption is not None else 0.0
    earlier = read_rounds(read.statuses.get(policy.uid, {}) if is_dry_run else {})
    moment = Moment(time.time(), min_runtime)
    balance_context = BalanceContext(
        moment,
        budgets=read.budgets,
        find_refusal=lambda pod: (
            None if read.ordered.pods.isdisjoint((pod.uid, pod.key)) else HAS_JOB
        ),
        migration=reading.migration,
        moving=read.ordered.moving,
    )
    pasts = earlier.past, earlier.reclaim
    view = view_balance(reading.state, policy, policy.settings, pasts, balance_context)
    print_in(
        output,
        head_of("Balance", reading),
        document=lambda: encode(view),
        names=lambda: (f"pod/{move.pod}" for move in view.moves) if is_dry_run else _hot(view),
        text=lambda: _draw(view, is_dry_run=is_dry_run),
    )


async def _read(kubeconfig: str, context: str) -> tuple[Reading, _Read]:
    async with open_client(kubeconfig, context) as (client, access):
        reading = await read_cluster(client, Target(TargetKind.POD, access.namespace, ""))
        return reading, await _read_policies(client)


async def _read_policies(client: Client) -> _Read:
    read, translator = _Read(), PolicyTranslator(translate_settings)
    try:
        body = await client.list(_POLICIES)
    except NotFound:
        return read  # its CRD is not installed
    objects = msgspec.json.decode(body, type=ObjectList[WireCustomResource]).items or ()
    for wire in objects:
        policy = translator.translate(wire)
        read.policies.append(policy)
        read.statuses[policy.uid] = translator.status_of(policy.uid) or {}
    try:
        read.budgets = await list_budgets(client)
        read.ordered = await MigrationOrders(client).list()
    except Forbidden:
        warn("you may not list PodDisruptionBudgets or PodMigrationJobs: fewer pods may move")
    except NotFound:
        pass  # no jobs are served
    return read


def _hot(view: BalanceView) -> Iterator[str]:
    return (f"node/{node.node}" for node in view.nodes if node.node_class in {"High", "ProdHigh"})


def _draw(view: BalanceView, *, is_dry_run: bool) -> Iterator[RenderableType]:
    yield Text.assemble((view.policy, "bold"), f" ({view.mode})")
    yield from _draw_nodes(view.nodes)
    if view.unknown:
        yield Text(f"{count_of(len(view.unknown), 'node')} without a fresh report of their use.")
    if not is_dry_run:
        return
    for pool, stop in view.stops.items():
        yield Text(f"Nothing moves in pool {pool}: {_STOPS.get(stop, stop)}.")
    yield from _draw_moves(view)
    if view.staying:
        table = make_table("STAYS", "NODE", "RULE", "REASON")
        for stay in view.staying:
            table.add_row(stay.pod, stay.node, stay.rule, stay.reason)
        yield table
    if view.caps_hit:
        yield Text(f"Caps keep more from moving: {', '.join(view.caps_hit)}.")


def _draw_moves(view: BalanceView) -> Iterator[RenderableType]:
    if view.moves:
        table = make_table("POD", "NODE", "TARGET", "REASON")
        for move in view.moves:
            table.add_row(move.pod, move.node, move.target, move.reason)
        yield table
    if view.reclaims:
        table = make_table("BATCH POD", "LEAVES", "REASON")
        for move in view.reclaims:
            table.add_row(move.pod, move.node, move.reason)
        yield table


def _draw_nodes(nodes: Sequence[LoadedNode]) -> Iterator[RenderableType]:
    if not nodes:
        yield Text("No node is in a pool with thresholds.")
        return
    names = sorted({resource for node in nodes for resource in node.resources})
    table = make_table("NODE", "POOL", "CLASS", *(name.upper() for name in names))
    for node in nodes:
        loads = (node.resources.get(name) for name in names)
        cells = (
            "" if load is None else f"{load.used:g}% ({load.low:g}-{load.high:g})" for load in loads
        )
        table.add_row(node.node, node.pool, node.node_class, *cells)
    yield table
