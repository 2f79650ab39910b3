"""Whether and how load counts in placement: the section ``loadAware`` of the configuration."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, model_validator
from typing_extensions import override

from koord.core.load.model import EXPIRATION, Aggregation
from koord.core.load.options import (
    DEFAULT_FACTORS,
    DEFAULT_THRESHOLDS,
    DEFAULT_WEIGHTS,
    Basis,
    LoadOptions,
    LoadThresholds,
)
from koord.domains.section import Seconds, Section

_MAX_NAMES = 64
_Name = Annotated[str, Field(min_length=1, max_length=317)]
_Percentages: TypeAlias = Annotated[
    Mapping[_Name, Annotated[int, Field(ge=0, le=100, strict=True)]], Field(max_length=_MAX_NAMES)
]
_Positive: TypeAlias = Annotated[
    Mapping[_Name, Annotated[int, Field(ge=1, le=100, strict=True)]], Field(max_length=_MAX_NAMES)
]


class AggregatedSettings(Section):
    """Thresholds for aggregates in place of the average; in effect with thresholds and a type."""

    usage_thresholds: _Percentages = Field(default_factory=dict)
    """Percentages that the aggregate must not exceed, by resource."""
    usage_aggregation_type: Aggregation | None = None
    """Which aggregate is limited."""
    usage_aggregated_duration: Seconds = Field(default=0.0, ge=0)
    """Over how long; it must be one that is reported. 0: the longest."""
    score_aggregation_type: Aggregation | None = None
    """By which aggregate nodes are compared."""
    score_aggregated_duration: Seconds = Field(default=0.0, ge=0)
    """Over how long, as above."""


class LoadAwareSettings(Section):
    """Whether and how load counts in placement; the names are those of LoadAwareSchedulingArgs.

    ``enabled``, ``poll_metrics``, ``poll_interval`` and ``relief`` are ours.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether nodes are refused, and compared, by what they use."""
    poll_metrics: bool = Field(default=True, strict=True)
    """Whether metrics.k8s.io is asked about nodes without a NodeMetric."""
    poll_interval: Seconds = Field(default=30.0, ge=5, le=600)
    """How often."""
    filter_expired_node_metrics: bool = Field(default=True, strict=True)
    """Whether nodes with an outdated report are refused; otherwise it counts as it is."""
    enable_schedule_when_node_metrics_expired: bool = Field(default=False, strict=True)
    """Whether nodes with an outdated report are used as if there were none."""
    node_metric_expiration_seconds: int = Field(default=int(EXPIRATION), ge=1, strict=True)
    """From which age on a report is outdated."""
    resource_weights: _Positive = Field(default_factory=dict)
    """How much each resource counts when nodes are compared; `cpu: 1, memory: 1` without any, and
    without `dominantResourceWeight`."""
    dominant_resource_weight: int = Field(default=0, ge=0, le=100, strict=True)
    """How much the resource counts of which least is left."""
    usage_thresholds: _Percentages = Field(default_factory=dict)
    """Percentages of a node that may be used, by resource; 0: no limit. `cpu: 65, memory: 95` if
    there are none."""
    prod_usage_thresholds: _Percentages = Field(default_factory=dict)
    """What pods of class koord-prod may use, where they have limits of their own."""
    prod_usage_include_sys: bool = Field(default=False, strict=True)
    """Whether what runs beside pods counts for that."""
    score_according_prod_usage: bool = Field(default=False, strict=True)
    """Whether nodes are compared by what pods of class koord-prod use, for such pods."""
    estimator: Literal["defaultEstimator"] = "defaultEstimator"
    """How the use of a new pod is estimated."""
    estimated_scaling_factors: _Positive = Field(default_factory=dict)
    """Percent of its requests that a new pod will use, by resource; `cpu: 85, memory: 70` where not
    given."""
    estimated_seconds_after_pod_scheduled: int = Field(default=0, ge=0, strict=True)
    """How long the estimate of a pod counts although it is measured, from its binding on; 0: only
    until it has been measured for a whole interval."""
    estimated_seconds_after_initialized: int = Field(default=0, ge=0, strict=True)
    """The same, from the end of its init containers on."""
    allow_customize_estimation: bool = Field(default=False, strict=True)
    """Whether annotations of pods count. Factors are cut to 0..100, and no pod counts for less than
    its requests with the factors here."""
    aggregated: AggregatedSettings = AggregatedSettings()
    """Aggregates in place of the average, where they are reported."""
    supported_resources: Annotated[tuple[_Name, ...], Field(max_length=_MAX_NAMES)] = ()
    """Resources that only annotations of nodes limit."""

    relief: Literal["none", "leastLoaded"] = "none"
    """What happens to pods that fit, and that only thresholds keep off all nodes: they wait, or the
    node of which least is used takes them, and their condition is `PlacedOverLoad`."""

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        unknown = sorted(self.resource_weights.keys() - self._factors.keys())
        if unknown:
            raise ValueError(
                f"resourceWeights: {', '.join(unknown)} must be in estimatedScalingFactors, too"
            )
        return self

    @property
    def as_reported(self) -> dict[str, Any] | None:
        """The section as the leader reports it, from which it can be made again; None if off."""
        if not self.enabled:
            return None
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    @property
    def _factors(self) -> dict[str, int]:
        return {**DEFAULT_FACTORS, **self.estimated_scaling_factors}

    @override
    def plan_options(self) -> Iterable[object]:
        yield self.options

    @property
    def options(self) -> LoadOptions:
        of = self.aggregated
        default_weights = {} if self.dominant_resource_weight else DEFAULT_WEIGHTS
        return LoadOptions(
            is_on=self.enabled,
            thresholds=LoadThresholds(
                self.usage_thresholds or DEFAULT_THRESHOLDS,
                self.prod_usage_thresholds,
                of.usage_thresholds,
                Basis(of.usage_aggregation_type, of.usage_aggregated_duration),
            ),
            filters_expired=self.filter_expired_node_metrics,
            admits_expired=self.enable_schedule_when_node_metrics_expired,
            expiration=float(self.node_metric_expiration_seconds),
            weights=self.resource_weights or default_weights,
            dominant=self.dominant_resource_weight,
            prod_includes_system=self.prod_usage_include_sys,
            scores_prod=self.score_according_prod_usage,
            score_basis=Basis(of.score_aggregation_type, of.score_aggregated_duration),
            factors=self._factors,
            after_scheduled=self.estimated_seconds_after_pod_scheduled,
            after_initialized=self.estimated_seconds_after_initialized,
            is_customizable=self.allow_customize_estimation,
            supported=self.supported_resources,
            relieves=self.relief == "leastLoaded",
        )


def read_reported(section: Mapping[str, Any] | None) -> LoadAwareSettings:
    """Return the settings that a leader reports; off if they make no sense here."""
    try:
        return LoadAwareSettings.model_validate(section or {})
    except ValidationError:
        return LoadAwareSettings()
