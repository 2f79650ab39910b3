"""Whether and how cluster autoscalers are told of pods: the section ``autoscaler``."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, ValidationError
from typing_extensions import override

from koord.api.resource import ResourceQuantity
from koord.core.autoscaler.options import AutoscalerOptions, Signal
from koord.core.model.nodes import Node, Taint
from koord.core.model.units import PODS
from koord.domains.section import Section
from koord.kube.translate.amounts import to_amounts

_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=317)]
_DEFAULT_PODS: Final = 110
_MOST_REPORTED: Final = 8192
"""Characters of a section: there may be many kinds of nodes."""
_DEFAULTS = AutoscalerOptions()


class KindTaint(Section):
    """A taint of such nodes."""

    key: str = Field(min_length=1, max_length=317)
    """Its key."""
    value: str = Field(default="", max_length=63)
    """Its value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """What it does."""


class NodeKind(Section):
    """A kind of nodes that an autoscaler can add."""

    allocatable: Annotated[Mapping[_Name, ResourceQuantity], Field(min_length=1, max_length=64)]
    """What one of them offers; 110 pods unless `pods` says otherwise."""
    labels: Annotated[
        Mapping[_Name, Annotated[str, Field(max_length=63)]], Field(max_length=64)
    ] = Field(default_factory=dict)
    """Its labels, as far as pods select them."""
    taints: Annotated[tuple[KindTaint, ...], Field(max_length=32)] = ()
    """Its taints, without those that go once it is ready."""

    def make_node(self, name: str) -> Node:
        amounts = {PODS: _DEFAULT_PODS, **to_amounts(self.allocatable)}
        taints = (Taint(taint.key, taint.value, taint.effect) for taint in self.taints)
        return Node(name, labels=dict(self.labels), taints=tuple(taints), allocatable=amounts)


class AutoscalerSettings(Section):
    """How an autoscaler learns that gangs lack nodes: they do not look at pods with a gate.

    It is told only of gangs that room on nodes is all that is lacking for.
    """

    signal: Literal["none", "mark", "provisioningRequest", "placeholder"] = "none"
    """`mark`: the condition `PodScheduled` of members that lack nodes says `Unschedulable`, as the
    cluster autoscaler and Karpenter expect it. `provisioningRequest`: the cluster autoscaler is
    asked with an object for each gang, for all nodes or none; needs the rights of
    `manifests/overlays/autoscaler`. `placeholder`: each such member has a pod in the namespace
    `koord-placeholders` that is never bound and looks to autoscalers as the member would; needs the
    rights of `manifests/overlays/placeholders`. `none`: nothing is said."""
    delay_seconds: float = Field(default=_DEFAULTS.delay, ge=0, le=3600)
    """How long a gang has lacked nodes before an autoscaler is told."""
    max_pods: int = Field(default=_DEFAULTS.max_pods, ge=1, le=10_000, strict=True)
    """Of how many pods it is told at the same time. A larger gang is never told of."""
    topology: Literal["fits", "always"] = "fits"
    """`always`: also of gangs for which there is room that is too spread over the network, although
    new nodes may come anywhere."""

    node_kinds: Annotated[tuple[NodeKind, ...], Field(max_length=64)] = ()
    """Kinds of nodes that it can add although the cluster has none, such as those of a pool that
    has shrunk to nothing. Kinds that the cluster has need not be named."""

    @property
    def as_reported(self) -> dict[str, Any] | None:
        """The section as the leader reports it, without defaults; None if off, or too long."""
        if not self.options.is_on:
            return None
        section = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return section if len(str(section)) <= _MOST_REPORTED else None

    @property
    def options(self) -> AutoscalerOptions:
        return AutoscalerOptions(
            Signal(self.signal),
            self.delay_seconds,
            self.max_pods,
            self.topology == "always",
            tuple(kind.make_node(f"kind-{at}") for at, kind in enumerate(self.node_kinds)),
        )

    @override
    def plan_options(self) -> Iterable[object]:
        yield self.options


def read_reported(section: Mapping[str, Any] | None) -> AutoscalerOptions:
    """Return the options that a leader reports; off if they make no sense here."""
    try:
        return AutoscalerSettings.model_validate(section or {}).options
    except ValidationError:
        return AutoscalerOptions()
