"""RebalancePolicy: moves pods off nodes that use too much, to nodes that use little.

The arguments are those of Koordinator's LowNodeLoad. A policy that says nothing else advises: it
reports what it would move, and moves nothing. Which pods go where is decided elsewhere.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from koord.api.model import ListMap, Marker, Model, Rule
from koord.api.quantity import parse_duration_seconds
from koord.api.quotaprofile import NodeSelector
from koord.api.resource import (
    AGE,
    Conditions,
    Duration,
    Int32,
    Int64,
    KeptSpec,
    LabelSelector,
    Names,
    PrinterColumn,
    Resource,
    Time,
    reason_column,
)

DEFAULT_INTERVAL: Final = "2m"
DEFAULT_TOTAL: Final = 10
DEFAULT_PER_NODE: Final = 2
DEFAULT_PER_WORKLOAD: Final = 1

_ATOMIC_LIST: Final = Marker({"x-kubernetes-list-type": "atomic"})
Percentage = Annotated[float, Field(ge=0, le=100)]
ThresholdMap = Annotated[dict[str, Percentage], Field(max_length=16)]
NamespaceNames = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=63)]], Field(max_length=256), _ATOMIC_LIST
]
AtLeastOneSecond = Annotated[
    Duration,
    Rule(
        "duration(self) >= duration('1s')",
        "must be at least 1s",
        lambda text: (parse_duration_seconds(text) or 0) >= 1,
    ),
]


class BalanceAnomalyCondition(Model):
    """How often in a row a node is over its thresholds before pods leave it."""

    timeout: AtLeastOneSecond | None = None
    """After this long a node must be hot as often again; twice the interval by default."""
    consecutive_abnormalities: Annotated[Int32, Field(ge=1, le=1000)] | None = None
    """Pods leave after more than so many hot rounds in a row; 1: at once. By default 5."""
    consecutive_normalities: Annotated[Int32, Field(ge=1, le=1000)] | None = None
    """It ends after more than so many rounds in which pods left. By default 3."""


def _are_paired(low: Mapping[str, float] | None, high: Mapping[str, float] | None) -> bool:
    if low is None or high is None:
        return low is high
    return low.keys() == high.keys() and all(low[name] <= high[name] for name in low)


def _prod_is_below(part: "BalanceThresholds") -> bool:
    high, prod = part.high_thresholds or {}, part.prod_high_thresholds or {}
    return bool(part.use_deviation_thresholds) or all(
        most <= high[name] for name, most in prod.items() if name in high
    )


class BalanceThresholds(Model):
    """Which nodes are low and which are hot, in percent of what can be allocated."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(has(self.lowThresholds) == has(self.highThresholds)) && "
            "(!has(self.lowThresholds) || (self.lowThresholds.all(r, r in self.highThresholds "
            "&& self.lowThresholds[r] <= self.highThresholds[r]) "
            "&& self.highThresholds.all(r, r in self.lowThresholds)))",
            "lowThresholds and highThresholds must name the same resources, and none may be "
            "lower in highThresholds",
            lambda part: _are_paired(part.low_thresholds, part.high_thresholds),
        ),
        Rule(
            "(has(self.prodLowThresholds) == has(self.prodHighThresholds)) && "
            "(!has(self.prodLowThresholds) || (self.prodLowThresholds.all(r, "
            "r in self.prodHighThresholds "
            "&& self.prodLowThresholds[r] <= self.prodHighThresholds[r]) "
            "&& self.prodHighThresholds.all(r, r in self.prodLowThresholds)))",
            "prodLowThresholds and prodHighThresholds must name the same resources, and none may "
            "be lower in prodHighThresholds",
            lambda part: _are_paired(part.prod_low_thresholds, part.prod_high_thresholds),
        ),
        Rule(
            "!has(self.prodHighThresholds) || !has(self.highThresholds) || "
            "(has(self.useDeviationThresholds) && self.useDeviationThresholds) || "
            "self.prodHighThresholds.all(r, !(r in self.highThresholds) "
            "|| self.prodHighThresholds[r] <= self.highThresholds[r])",
            "no resource may be higher in prodHighThresholds than in highThresholds",
            _prod_is_below,
        ),
    )

    use_deviation_thresholds: bool | None = None
    """Whether thresholds are distances from the average of the nodes; 0 is no limit then."""
    low_thresholds: ThresholdMap | None = None
    """A node on which no resource is above these takes pods."""
    high_thresholds: ThresholdMap | None = None
    """A node on which any resource is above these gives pods."""
    prod_low_thresholds: ThresholdMap | None = None
    """The same as lowThresholds, for what pods of class prod use."""
    prod_high_thresholds: ThresholdMap | None = None
    """The same as highThresholds, for what pods of class prod use."""
    resource_weights: (
        Annotated[dict[str, Annotated[Int32, Field(ge=0, le=100)]], Field(max_length=16)] | None
    ) = None
    """How much each resource counts for the order of nodes and pods; 1 each by default."""
    anomaly_condition: BalanceAnomalyCondition | None = None
    """How often in a row a node is over its thresholds before pods leave it."""


class BalanceNodePool(BalanceThresholds):
    """Nodes with thresholds of their own; what is absent is taken from the policy."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the pool."""
    node_selector: NodeSelector | None = None
    """The nodes of the pool; all nodes if absent."""


class NamedPodSelector(Model):
    """Selects pods; the name is for people."""

    name: Annotated[str, Field(max_length=63)] | None = None
    """Name of the selector."""
    selector: LabelSelector
    """Labels of the pods."""


class EvictableNamespaces(Model):
    """The namespaces whose pods may be moved."""

    rules = (
        Rule(
            "!(has(self.include) && has(self.exclude))",
            "include and exclude exclude each other; remove one of them",
            lambda part: part.include is None or part.exclude is None,
        ),
    )

    include: NamespaceNames | None = None
    """Only these."""
    exclude: NamespaceNames | None = None
    """All but these."""


class MoveCapsSpec(Model):
    """How many pods one round moves at most; 0: none."""

    total: Annotated[Int32, Field(ge=0, le=10000)] | None = None
    """In all; 10 by default."""
    per_node: Annotated[Int32, Field(ge=0, le=10000)] | None = None
    """Off each node; 2 by default."""
    per_namespace: Annotated[Int32, Field(ge=0, le=10000)] | None = None
    """Of each namespace; no limit by default."""
    per_workload: Annotated[Int32, Field(ge=0, le=10000)] | None = None
    """Of each controller or gang; 1 by default."""


class BatchReclaim(Model):
    """When batch pods leave nodes on which prod pods need their room.

    At most one pod or gang leaves a node in 30 seconds, the lowest first.
    """

    memory_threshold: Annotated[float, Field(ge=1, le=100)] | None = None
    """Percentage of its memory from which on a node gives batch pods. By default 65: five points
    before Koordinator's agent would evict them, because reports are late."""
    overcommit_grace: AtLeastOneSecond | None = None
    """How long batch pods may request more batch resources than their node offers; without it they
    stay however little it offers."""


def _is_rarer(spec: "RebalancePolicySpec") -> bool:
    if spec.detector_cache_timeout is None:
        return True
    interval = parse_duration_seconds(spec.interval or DEFAULT_INTERVAL) or 0
    return interval < (parse_duration_seconds(spec.detector_cache_timeout) or 0)


class RebalancePolicySpec(BalanceThresholds):
    """When nodes are hot, and how their pods are moved."""

    rules = (
        *BalanceThresholds.rules,
        Rule(
            "!has(self.detectorCacheTimeout) || "
            f"duration(has(self.interval) ? self.interval : '{DEFAULT_INTERVAL}') "
            "< duration(self.detectorCacheTimeout)",
            "interval must be less than detectorCacheTimeout, or nothing is ever moved",
            _is_rarer,
        ),
    )

    mode: Literal["Advise", "Migrate", "Evict"] | None = None
    """Advise, the default, moves nothing and reports what it would. Migrate reserves a new place
    before a pod is evicted; Evict evicts it at once."""
    interval: (
        Annotated[
            Duration,
            Rule(
                "duration(self) >= duration('10s')",
                "must be at least 10s",
                lambda text: (parse_duration_seconds(text) or 0) >= 10,
            ),
        ]
        | None
    ) = None
    """Time between two rounds; 2m by default."""
    paused: bool | None = None
    """Whether no rounds take place."""
    dry_run: bool | None = None
    """Whether nothing is moved, whatever the mode."""
    node_fit: (
        Annotated[
            bool,
            Rule(
                "self",
                "must be true: a pod moves only if another node takes it; remove nodeFit",
                bool,
            ),
        ]
        | None
    ) = None
    """Accepted because LowNodeLoad has it; must be true."""
    number_of_nodes: Annotated[Int32, Field(ge=0)] | None = None
    """Nothing is moved unless more nodes than these are low; 0 by default."""
    node_metric_expiration_seconds: Annotated[Int64, Field(ge=1, le=86400)] | None = None
    """Nodes with an older report are left out; 180 by default."""
    detector_cache_timeout: AtLeastOneSecond | None = None
    """How long hot rounds of a node are remembered after the last of them; the longer of 5m and
    three intervals by default."""
    evictable_namespaces: EvictableNamespaces | None = None
    """The namespaces whose pods may be moved; all by default."""
    node_selector: NodeSelector | None = None
    """The nodes that the policy is about; all by default."""
    pod_selectors: Annotated[list[NamedPodSelector], Field(max_length=32), _ATOMIC_LIST] | None = (
        None
    )
    """Pods that may be moved: those that any of these selects; all by default."""
    node_pools: (
        Annotated[list[BalanceNodePool], Field(max_length=32), ListMap(("name",))] | None
    ) = None
    """Further pools, balanced after the nodes that the policy itself is about."""
    caps: MoveCapsSpec | None = None
    """How many pods one round moves at most."""
    batch_reclaim: BatchReclaim | None = None
    """Batch pods leave nodes that are short of memory or offer less than is bound; {} switches it
    on. By default they stay."""


class BalancedNodes(Model):
    """How many nodes are of which class, of the first pool that a node is in."""

    high: Int32 | None = None
    """Any resource is over its threshold."""
    prod_high: Int32 | None = None
    """What pods of class prod use is over its threshold."""
    normal: Int32 | None = None
    """Neither hot nor low."""
    prod_low: Int32 | None = None
    """What pods of class prod use is low."""
    both_low: Int32 | None = None
    """All that is used is low, and what pods of class prod use, too."""
    low: Int32 | None = None
    """All that is used is low."""
    unknown: Int32 | None = None
    """Nobody reports what they use, or the report is too old."""


class NodeDetector(Model):
    """How often in a row a node was hot; it goes on after a restart of the operator."""

    pool: str
    """The pool."""
    kind: str
    """Node or Prod: of all that is used, or by pods of class prod."""
    node: str
    """The node."""
    is_anomalous: Annotated[bool, Field(alias="anomalous")] = False
    """Whether pods leave it."""
    bad: Int32 = 0
    """Hot rounds in a row."""
    good: Int32 = 0
    """Rounds in a row in which pods left."""
    since: Int64 = 0
    """Since when pods leave it, in seconds since the epoch."""
    last_bad: Int64 = 0
    """When it was hot last, in seconds since the epoch."""


class RememberedMove(Model):
    """A move that later rounds respect: nothing goes back where it left for a while."""

    workload: str
    """Namespace and UID of the controller, or the gang."""
    left: str
    """The node that the pod left."""
    target: str
    """The node that it was meant for."""
    at: Int64
    """When, in seconds since the epoch."""
    returns: Int32 = 0
    """How often it had come back before."""


class ReportedMove(Model):
    """A pod that was moved, or would be."""

    pod: str
    """Namespace and name of the pod."""
    node: str
    """The node that it leaves."""
    target: str | None = None
    """The node that has room for it."""
    reason: str | None = None
    """Why it leaves."""
    job: str | None = None
    """The PodMigrationJob."""
    time: Time | None = None
    """When it was decided."""


class OvercommittedNode(Model):
    """A node of which batch pods request more than it offers."""

    node: str
    """The node."""
    since: Int64
    """Since when, in seconds since the epoch."""


class ReclaimedPod(Model):
    """A batch pod that was to leave a node not long ago; it goes on after a restart."""

    uid: str
    """The uid of the pod."""
    pod: str
    """Namespace and name of the pod."""
    node: str
    """The node that it leaves."""
    memory: Int64 = 0
    """The bytes that it used, which reports show for a while."""
    at: Int64
    """When that was decided, in seconds since the epoch."""
    left: Int64 = 0
    """When it was first seen to end, in seconds since the epoch; 0: not yet."""


class BatchReclaimStatus(Model):
    """Nodes that prod pods need room of, and the batch pods that leave them."""

    short_nodes: Int32 | None = None
    """How many nodes use too much memory, or offer less than is bound, for too long."""
    evicted: Int64 | None = None
    """How many batch pods were to leave in all."""
    would_evict: list[ReportedMove] | None = None
    """What would leave now, had the policy to move anything."""
    held: list[str] | None = None
    """Why batch pods of short nodes stay, for the first of them."""
    overcommitted: list[OvercommittedNode] | None = None
    """Nodes of which batch pods request more than they offer."""
    overcommitted_omitted: Int32 | None = None
    """Such nodes that do not fit into the status; a restart begins their time again."""
    recent: list[ReclaimedPod] | None = None
    """Pods that were to leave lately."""


class RebalancePolicyStatus(Model):
    """What the last rounds found and did."""

    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """Conditions of the policy: Accepted, Ready."""
    rounds: Int64 | None = None
    """How many rounds took place."""
    last_round_time: Time | None = None
    """When the last one was."""
    nodes: BalancedNodes | None = None
    """How many nodes were of which class then."""
    detectors: list[NodeDetector] | None = None
    """Nodes that were hot lately."""
    detectors_omitted: Int32 | None = None
    """Hot nodes whose counters do not fit into the status; a restart begins them again."""
    moves: Int64 | None = None
    """How many pods were moved in all."""
    last_moves: list[ReportedMove] | None = None
    """The last pods that were moved, the latest first."""
    would_evict: list[ReportedMove] | None = None
    """What the last round would have moved, had it been to move anything."""
    caps_hit: list[str] | None = None
    """The caps that kept the last round from moving more."""
    remembered: list[RememberedMove] | None = None
    """Moves that later rounds respect."""
    batch_reclaim: BatchReclaimStatus | None = None
    """Nodes that prod pods need room of, and the batch pods that leave them."""
    last_valid_spec: KeptSpec | None = None
    """The settings in force: those of the spec while valid, else the last valid ones."""


class RebalancePolicy(Resource):
    """Moves pods off nodes that use too much, to nodes that use little."""

    names: ClassVar = Names(
        group="operators.koordinator.sh",
        kind="RebalancePolicy",
        plural="rebalancepolicies",
        short=("rbp",),
        namespaced=False,
        columns=(
            PrinterColumn("Mode", ".spec.mode"),
            PrinterColumn("Hot", ".status.nodes.high", "integer", "Nodes over their thresholds."),
            PrinterColumn("Low", ".status.nodes.bothLow", "integer", "Nodes that use little."),
            PrinterColumn("Moves", ".status.moves", "integer", "Pods that were moved."),
            reason_column("Ready"),
            reason_column("Accepted", priority=1),
            AGE,
        ),
    )

    spec: RebalancePolicySpec
    """When nodes are hot, and how their pods are moved."""
    status: RebalancePolicyStatus = RebalancePolicyStatus()
    """What the last rounds found and did."""
