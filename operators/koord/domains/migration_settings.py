"""Which pods are moved, how, and how many at once: the section ``migration``."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from koord.core.eviction.limits import EvictionLimit, LimitScope
from koord.core.migration.model import (
    EvictPolicy,
    JobMode,
    MigrationOptions,
    NamespaceChoice,
    ObjectLimit,
)
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.domains.section import DNS_SUBDOMAIN, Seconds, Section

MIGRATION: Final = "migration"
_MOST_REPORTED: Final = 8192
"""Characters of a section: it may name a thousand namespaces."""


def _parse_amount(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000:
        return str(value)
    if isinstance(value, str):
        digits = value.removesuffix("%")
        if not value or (digits.isascii() and digits.isdigit() and len(digits) < 7):
            return value
    raise ValueError("must be a whole number, or a percentage such as 10%")


def _parse_rate(value: object) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return float(value)
    raise ValueError("must be a number, such as 10 or 0.5")


_Amount = Annotated[str, BeforeValidator(_parse_amount)]
_Count = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
_Namespaces = Annotated[
    frozenset[Annotated[str, Field(max_length=63, pattern=DNS_SUBDOMAIN)]], Field(max_length=1024)
]
_Gate = Literal[
    "MaxUnavailablePerWorkload",
    "MaxMigratingPerWorkload",
    "MaxMigratingPerNode",
    "MaxMigratingPerNamespace",
    "MaxMigratingGlobally",
    "ExpectedReplicas",
    "PVC",
    "BarePods",
    "LocalStorage",
    "SystemCritical",
    "PriorityThreshold",
    "LabelSelector",
    "Namespaces",
    "NodeFit",
]


class ObjectLimiterSettings(Section):
    """How fast pods of one workload, or of one namespace, are moved."""

    duration: Seconds = Field(default=300.0, gt=0)
    """In this time `maxMigrating` pods are moved in the long run."""
    max_migrating: _Amount = "0"
    """A whole number, or for workloads a percentage of the replicas. 0: as many as may be moved at
    once; for namespaces: no limit."""
    burst: int = Field(default=1, ge=0, le=10_000, strict=True)
    """How many may be moved at once after a pause."""

    @property
    def limit(self) -> ObjectLimit:
        return ObjectLimit(self.max_migrating, self.duration, self.burst)


class ObjectLimitersSettings(Section):
    """Rates per workload and per namespace."""

    workload: ObjectLimiterSettings | None = ObjectLimiterSettings()
    """Of one workload; none with `null`."""
    namespace: ObjectLimiterSettings | None = None
    """Of one namespace; none by default."""


class NamespacesSettings(Section):
    """Namespaces whose pods may be moved; one of the two lists."""

    include: _Namespaces = frozenset()
    """Only these."""
    exclude: _Namespaces = frozenset()
    """All but these."""

    @model_validator(mode="after")
    def _have_one_list(self) -> Self:
        if self.include and self.exclude:
            raise ValueError("include and exclude cannot both be given")
        return self


class PriorityThresholdSettings(Section):
    """Pods of this priority or a higher one are not moved."""

    name: Annotated[str, Field(max_length=253)] = ""
    """A PriorityClass, whose value counts."""
    value: int | None = None
    """The priority itself."""


class ArbitrationSettings(Section):
    """How waiting jobs are chosen."""

    enabled: bool = Field(default=True, strict=True)
    """Whether jobs wait for the limits; otherwise all that may be moved start at once."""
    interval: Seconds = Field(default=0.5, gt=0)
    """How often jobs are chosen."""


class MigrationSettings(Section):
    """Which pods PodMigrationJobs move; names are those of Koordinator's MigrationController.

    ``enabled``, ``allow_delete``, ``memory`` are ours, and what is counted per minute.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether PodMigrationJobs are carried out."""
    dry_run: bool = Field(default=False, strict=True)
    """Jobs are judged, and none starts."""
    default_job_mode: JobMode = JobMode.RESERVATION_FIRST
    """For jobs without `mode`."""
    default_job_ttl: Seconds = Field(default=600.0, gt=0, alias="defaultJobTTL")
    """The `ttl` of jobs that policies order; those of users without one have no limit."""
    scheduler_names: Annotated[frozenset[str], Field(max_length=64)] = frozenset(
        {"koord-scheduler"}
    )
    """Besides pods that the operators place, those of these schedulers, which have to know
    Reservations."""
    max_migrating_globally: _Count | None = None
    """How many pods are moved at once; no limit by default. 0 moves none."""
    max_migrating_per_namespace: _Count | None = None
    """How many of one namespace."""
    max_migrating_per_node: _Count | None = 2
    """How many away from one node."""
    max_migrating_per_workload: _Amount = ""
    """How many of one workload: a whole number or a percentage. By default 1 of up to 3 replicas, 2
    of up to 10, a tenth of more."""
    max_unavailable_per_workload: _Amount = ""
    """How many of one workload may be moved or not ready, besides the pod in question; the same
    default."""
    skip_check_expected_replicas: bool = Field(default=False, strict=True)
    """Whether workloads may be moved of which no replica would remain meanwhile."""
    object_limiters: ObjectLimitersSettings = ObjectLimitersSettings()
    max_no_of_pods_to_evict_total: _Count | None = None
    """How many pods are evicted within a minute for moves; no limit by default."""
    max_no_of_pods_to_evict_per_node: _Count | None = None
    """How many of one node."""
    max_no_of_pods_to_evict_per_namespace: _Count | None = None
    """How many of one namespace."""
    evict_qps: Annotated[float, BeforeValidator(_parse_rate), Field(gt=0)] = Field(
        default=10.0, alias="evictQPS"
    )
    """How many pods are evicted per second for moves."""
    evict_burst: int = Field(default=1, ge=1, le=10_000, strict=True)
    """How many at once."""
    eviction_policy: EvictPolicy = EvictPolicy.EVICTION
    """How pods end whose label `koordinator.sh/evict-policy` says nothing else: Eviction, Delete or
    SoftEviction."""
    allow_delete: bool = Field(default=False, strict=True)
    """Whether pods may be deleted whatever their PodDisruptionBudgets say; otherwise Delete means
    Eviction."""
    skip_eviction_gates: Annotated[frozenset[_Gate], Field(max_length=64)] = frozenset()
    """Checks that are left out."""
    evict_failed_bare_pods: bool = Field(default=False, strict=True)
    """Failed pods without an owner may go."""
    evict_all_bare_pods: bool = Field(default=False, strict=True)
    """All pods without an owner may go; nothing creates them again."""
    evict_local_storage_pods: bool = Field(default=False, strict=True)
    """Pods with emptyDir or hostPath volumes may go; what is in them is lost."""
    evict_system_critical_pods: bool = Field(default=False, strict=True)
    """Pods of any priority may go."""
    ignore_pvc_pods: bool = Field(default=False, strict=True)
    """Pods with PersistentVolumeClaims stay."""
    priority_threshold: PriorityThresholdSettings = PriorityThresholdSettings()
    label_selector: Annotated[dict[str, str], Field(max_length=64)] = Field(default_factory=dict)
    """Only pods with all of these labels."""
    node_selector: Annotated[dict[str, str], Field(max_length=64)] = Field(default_factory=dict)
    """Only pods on nodes with all of these labels."""
    namespaces: NamespacesSettings = NamespacesSettings()
    arbitration_args: ArbitrationSettings = ArbitrationSettings()
    memory: Seconds = Field(default=1800.0, ge=0)
    """How long a pod that was moved stays where it is, and its workload away from the node that was
    left."""

    @property
    def eviction_limits(self) -> tuple[EvictionLimit, ...]:
        """What is counted with all evictions."""
        most = (
            (LimitScope.ALL, self.max_no_of_pods_to_evict_total),
            (LimitScope.NODE, self.max_no_of_pods_to_evict_per_node),
            (LimitScope.NAMESPACE, self.max_no_of_pods_to_evict_per_namespace),
        )
        return tuple(
            EvictionLimit(scope, count, MIGRATION) for scope, count in most if count is not None
        )

    @property
    def as_reported(self) -> dict[str, Any] | None:
        """The section as the leader reports it, without defaults; None if it is too long."""
        section = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return section if len(str(section)) <= _MOST_REPORTED else None

    def make_options(self, *, compat: bool) -> MigrationOptions:
        limiters = self.object_limiters
        return MigrationOptions(
            is_on=self.enabled,
            is_dry=self.dry_run,
            compat=compat,
            default_mode=self.default_job_mode,
            schedulers=self.scheduler_names,
            default_policy=self.eviction_policy,
            may_delete=self.allow_delete,
            most_globally=self.max_migrating_globally,
            most_per_namespace=self.max_migrating_per_namespace,
            most_per_node=self.max_migrating_per_node,
            most_per_workload=self.max_migrating_per_workload,
            most_unavailable=self.max_unavailable_per_workload,
            skips_expected_replicas=self.skip_check_expected_replicas,
            workload_limit=limiters.workload.limit if limiters.workload else None,
            namespace_limit=limiters.namespace.limit if limiters.namespace else None,
            namespaces=NamespaceChoice(self.namespaces.include, self.namespaces.exclude),
            evicts_failed_bare=self.evict_failed_bare_pods,
            evicts_all_bare=self.evict_all_bare_pods,
            evicts_local_storage=self.evict_local_storage_pods,
            evicts_critical=self.evict_system_critical_pods,
            ignores_claims=self.ignore_pvc_pods,
            priority_threshold=self.priority_threshold.value,
            threshold_class=self.priority_threshold.name,
            label_selector=_make_selector(self.label_selector),
            node_selector=_make_selector(self.node_selector),
            skipped=frozenset(self.skip_eviction_gates),
            arbitrates=self.arbitration_args.enabled,
            memory=self.memory,
        )


def _make_selector(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(key, SelectorOperator.IN, (value,)) for key, value in sorted(labels.items())
    )


def read_reported(section: Mapping[str, Any] | None, *, compat: bool) -> MigrationOptions:
    """Return the options that a leader reports; the defaults if they make no sense here."""
    try:
        settings = MigrationSettings.model_validate(section or {})
    except ValidationError:
        settings = MigrationSettings()
    return settings.make_options(compat=compat)
