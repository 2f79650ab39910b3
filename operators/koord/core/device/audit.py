"""Compares the device ledgers of nodes with what their pods were given: they must be equal."""

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, TypeAlias

from koord.core.device.model import DeviceShare
from koord.core.device.plugin import Devices
from koord.core.model.device_names import DeviceType
from koord.core.model.pod_charge import node_charged
from koord.core.model.pods import Handling, Pod

if TYPE_CHECKING:
    from koord.core.engine.state import ClusterState

Amount: TypeAlias = tuple[DeviceType, int, str]
"""Type, minor and resource of a device."""


def find_drift(state: "ClusterState", nodes: Collection[str]) -> list[str]:
    """Return those of the nodes whose devices are not used as their pods say; none are expected."""
    plugin = state.plugin(Devices)
    ledgers = {node: ledger for node in nodes if (ledger := plugin.ledger_of(node)) is not None}
    counted: dict[str, Counter[Amount]] = {node: Counter() for node in ledgers}
    for pod in state.pods.values() if counted else ():
        node = node_charged(pod)
        if node in counted:
            for share in _shares_of(plugin, node, pod):
                for name, amount in share.part:
                    counted[node][(share.kind, share.minor, name)] += amount
    charged = {
        node: Counter(
            {(*key, name): n for key, use in ledger.used.items() for name, n in use.amounts}
        )
        for node, ledger in ledgers.items()
    }
    return [node for node in ledgers if charged[node] != counted[node]]


def _shares_of(plugin: Devices, node: str, pod: Pod) -> tuple[DeviceShare, ...]:
    if pod.handling is Handling.RESERVE:
        return plugin.make_hold(node, pod.allocations).left
    return plugin.numbered(node, plugin.given_to(pod.uid) or pod.allocations)
