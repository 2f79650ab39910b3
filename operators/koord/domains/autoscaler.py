"""Nodes that come and go."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from typing_extensions import override

from koord.api.keys import autoscaler as keys
from koord.core.autoscaler.options import AutoscalerOptions
from koord.core.autoscaler.plugin import NAME, ElasticNodes
from koord.core.engine.plugin import Plugin
from koord.domains.planning import Planning, PlanOptions
from koord.kube.kind import PodReader


class AutoscalerPodReader(PodReader):
    """Reads by which ProvisioningRequest nodes for a pod were asked for."""

    name = NAME

    @override
    def read_hints(
        self, annotations: Mapping[str, str], labels: Mapping[str, str], priority: int
    ) -> Hashable | None:
        return (
            annotations.get(keys.CONSUMED_REQUEST)
            or annotations.get(keys.CONSUMED_REQUEST_DEPRECATED)
            or None
        )


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    # Koordinator leaves it to the taints.
    return () if options.compat else (ElasticNodes(options.of(AutoscalerOptions)),)


def _reads_pods(options: PlanOptions) -> bool:
    return options.of(AutoscalerOptions).is_on and not options.compat


PLANNING: Final = Planning(
    make_plugins=_make_plugins, pod_reader=AutoscalerPodReader(), reads_pods=_reads_pods
)
