"""What is written for the agents of nodes: the sections ``nodeSlo`` and ``nodeRatios``."""

from collections.abc import Iterable

from pydantic import Field
from typing_extensions import override

from koord.core.nodeslo.plugin import SloOptions
from koord.domains.section import Section


class NodeSloSettings(Section):
    """NodeSLOs, which koordlet applies. Without that agent on the nodes nothing applies them.

    Needs the rights of `manifests/overlays/node-slo`.
    """

    render: bool = Field(default=False, strict=True)
    """Whether a NodeSLO is written for each node, from the ConfigMap
    `koordinator-system/slo-controller-config`. Nothing is written while Koordinator's manager
    runs."""

    @override
    def plan_options(self) -> Iterable[object]:
        yield SloOptions(self.render)


class NodeRatioSettings(Section):
    """Annotations of nodes: how fast their CPUs are, how many times resources are offered.

    Needs the rights of `manifests/overlays/slo-config`.
    """

    publish: bool = Field(default=False, strict=True)
    """Whether they are written, from the ConfigMap `koordinator-system/slo-controller-config`.
    Nothing is written while Koordinator's manager runs."""
