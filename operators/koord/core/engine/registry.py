"""Creates the plugins of the planner: all domains, and the rules of kube-scheduler."""

from collections.abc import Callable
from typing import TypeAlias

from koord.core.device.allocate import AllocationSettings
from koord.core.device.model import DEFAULT_OPTIONS, DeviceOptions
from koord.core.device.plugin import PACKED, Devices
from koord.core.engine.plugin import Plugin
from koord.core.gang.cache import GangCache
from koord.core.numa.plugin import Numa
from koord.core.plugins.awaited_daemons import AwaitedDaemons
from koord.core.plugins.host_ports import HostPorts
from koord.core.plugins.inter_pod import InterPod
from koord.core.plugins.node_rules import NodeRules
from koord.core.plugins.nominations import Nominations
from koord.core.plugins.rejections import Rejections
from koord.core.plugins.volumes import Volumes
from koord.core.quota.cache import QuotaCache
from koord.core.quota.hooks import Hooks
from koord.core.quota.model import QuotaRules
from koord.core.quota.plugin import Quotas
from koord.core.reservation.plugin import Reservations
from koord.core.topology.plugin import Topologies

MakePlugins: TypeAlias = Callable[[GangCache], tuple[Plugin, ...]]


def make_plugins(
    gangs: GangCache,
    rules: QuotaRules | None = None,
    hooks: Hooks | None = None,
    settings: AllocationSettings = PACKED,
    device_options: DeviceOptions = DEFAULT_OPTIONS,
) -> tuple[Plugin, ...]:
    """Return new plugins for one cluster state; ``gangs`` are its gangs."""
    return (
        NodeRules(),
        Rejections(),
        HostPorts(),
        Volumes(),
        InterPod(),
        Devices(settings, device_options),
        Numa(),
        Topologies(gangs),
        Reservations(compat=gangs.compat),
        Nominations(),
        AwaitedDaemons(),
        Quotas(QuotaCache(rules, hooks=hooks)),
    )
