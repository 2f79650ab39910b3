"""Whether and how cluster autoscalers are told of pods: the section ``autoscaler``."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field
from typing_extensions import override

from koord.core.autoscaler.options import AutoscalerOptions, Signal
from koord.domains.section import Section

_DEFAULTS = AutoscalerOptions()


class AutoscalerSettings(Section):
    """How an autoscaler learns that gangs lack nodes: they do not look at pods with a gate.

    It is told only of gangs that room on nodes is all that is lacking for.
    """

    signal: Literal["none", "mark", "provisioningRequest"] = "none"
    """`mark`: the condition `PodScheduled` of members that lack nodes says `Unschedulable`, as the
    cluster autoscaler and Karpenter expect it. `provisioningRequest`: the cluster autoscaler is
    asked with an object for each gang, for all nodes or none; needs the rights of
    `manifests/overlays/autoscaler`. `none`: nothing is said."""
    delay_seconds: float = Field(default=_DEFAULTS.delay, ge=0, le=3600)
    """How long a gang has lacked nodes before an autoscaler is told."""
    max_pods: int = Field(default=_DEFAULTS.max_pods, ge=1, le=10_000, strict=True)
    """Of how many pods it is told at the same time. A larger gang is never told of."""
    topology: Literal["fits", "always"] = "fits"
    """`always`: also of gangs for which there is room that is too spread over the network, although
    new nodes may come anywhere."""

    @property
    def options(self) -> AutoscalerOptions:
        return AutoscalerOptions(
            Signal(self.signal), self.delay_seconds, self.max_pods, self.topology == "always"
        )

    @override
    def plan_options(self) -> Iterable[object]:
        yield self.options
