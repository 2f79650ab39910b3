"""Keys of the ConfigMap ``slo-controller-config`` about processors, offers, and NodeSLOs.

Compatible with Koordinator's. Each has a strategy for the cluster, and others for nodes that a
selector picks: the first that matches is merged over that of the cluster. Keys about NodeSLOs have
the strategy of the cluster in ``clusterStrategy``, the other two at the top.
"""

from typing import Annotated, Any, Final

from pydantic import Field

from koord.api.model import Model, Rule
from koord.api.nodeslo import (
    MAX_PARTS,
    CpuBurstStrategy,
    HostApplicationSpec,
    QosStrategy,
    SystemStrategy,
    ThresholdStrategy,
)
from koord.api.quotaprofile import NodeSelector

MAX_NODE_CONFIGS: Final = 256
HIGHEST_NORMALIZATION: Final = 5
HIGHEST_OFFER: Final = 100
CONFIG_OF_NODES: Final = frozenset({"name", "nodeSelector"})
"""Fields of an entry for nodes that are no part of its strategy."""

Ratio = Annotated[float, Field(ge=1, le=HIGHEST_NORMALIZATION, allow_inf_nan=False)]
Offer = Annotated[float, Field(ge=1, le=HIGHEST_OFFER, allow_inf_nan=False)]
_Name = Annotated[str, Field(min_length=1, max_length=253)]


def _selects(selector: Any) -> bool:
    return bool(selector.match_labels or selector.match_expressions)


class ForNodes(Model):
    """Which nodes an entry is for."""

    name: Annotated[str, Field(max_length=253)] | None = None
    """Name of the entry, for people."""
    node_selector: Annotated[NodeSelector, Rule("true", "must name at least one label", _selects)]
    """Nodes by their labels."""


class ModelRatio(Model):
    """How much faster one model of processors is than those that the cluster is measured in."""

    base_ratio: Ratio | None = None
    """Without hyper-threading and turbo."""
    hyper_thread_enabled_ratio: Ratio | None = None
    """With hyper-threading."""
    turbo_enabled_ratio: Ratio | None = None
    """With turbo."""
    hyper_thread_turbo_enabled_ratio: Ratio | None = None
    """With both."""


class NormalizationStrategy(Model):
    """How processors are compared."""

    enable: bool | None = None
    """Whether they are; false by default."""
    default_ratio: Ratio | None = None
    """Of models that are not listed."""
    ratio_model: Annotated[dict[_Name, ModelRatio], Field(max_length=1024)] | None = None
    """Ratios by the name of the model."""


class NormalizationForNodes(NormalizationStrategy, ForNodes):
    """How processors of some nodes are compared."""


class NormalizationConfig(NormalizationStrategy):
    """The key ``cpu-normalization-config``."""

    node_configs: (
        Annotated[list[NormalizationForNodes], Field(max_length=MAX_NODE_CONFIGS)] | None
    ) = None
    """Strategies of some nodes."""


class OfferStrategy(Model):
    """How many times resources are offered."""

    enable: bool | None = None
    """Whether they are offered more than once; false by default."""
    resource_amplification_ratio: Annotated[dict[_Name, Offer], Field(max_length=64)] | None = None
    """Ratios by resource."""


class OfferForNodes(OfferStrategy, ForNodes):
    """How many times resources of some nodes are offered."""


class OfferConfig(OfferStrategy):
    """The key ``resource-amplification-config``."""

    node_configs: Annotated[list[OfferForNodes], Field(max_length=MAX_NODE_CONFIGS)] | None = None
    """Strategies of some nodes."""


class ThresholdForNodes(ThresholdStrategy, ForNodes):
    """Thresholds of some nodes."""


class ThresholdConfig(Model):
    """The key ``resource-threshold-config``."""

    cluster_strategy: ThresholdStrategy | None = None
    """That of the cluster."""
    node_strategies: (
        Annotated[list[ThresholdForNodes], Field(max_length=MAX_NODE_CONFIGS)] | None
    ) = None
    """Those of some nodes."""


class QosForNodes(QosStrategy, ForNodes):
    """What QoS classes get on some nodes."""


class QosConfig(Model):
    """The key ``resource-qos-config``."""

    cluster_strategy: QosStrategy | None = None
    """That of the cluster."""
    node_strategies: Annotated[list[QosForNodes], Field(max_length=MAX_NODE_CONFIGS)] | None = None
    """Those of some nodes."""


class BurstForNodes(CpuBurstStrategy, ForNodes):
    """Burst on some nodes."""


class BurstConfig(Model):
    """The key ``cpu-burst-config``."""

    cluster_strategy: CpuBurstStrategy | None = None
    """That of the cluster."""
    node_strategies: Annotated[list[BurstForNodes], Field(max_length=MAX_NODE_CONFIGS)] | None = (
        None
    )
    """Those of some nodes."""


class SystemForNodes(SystemStrategy, ForNodes):
    """Settings of the kernel of some nodes."""


class SystemConfig(Model):
    """The key ``system-config``."""

    cluster_strategy: SystemStrategy | None = None
    """That of the cluster."""
    node_strategies: Annotated[list[SystemForNodes], Field(max_length=MAX_NODE_CONFIGS)] | None = (
        None
    )
    """Those of some nodes."""


_Applications = Annotated[list[HostApplicationSpec], Field(max_length=MAX_PARTS)]


class ApplicationsForNodes(ForNodes):
    """Applications on some nodes."""

    applications: _Applications | None = None
    """They replace those of the cluster."""


class ApplicationConfig(Model):
    """The key ``host-application-config``."""

    applications: _Applications | None = None
    """Those on all nodes."""
    node_configs: (
        Annotated[list[ApplicationsForNodes], Field(max_length=MAX_NODE_CONFIGS)] | None
    ) = None
    """Those of some nodes."""
