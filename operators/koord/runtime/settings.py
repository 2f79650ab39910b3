"""The configuration file of the operators: one versioned YAML document, validated before use.

Unknown fields and invalid values are rejected with their name and value, so that a typo does not
become a default. There are no secrets in it.
"""

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeAlias

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from koord.api import Compat
from koord.api.model import Documented
from koord.api.quantity import parse_duration_seconds
from koord.api.yaml_text import load_yaml
from koord.core.device.health import RECOVERY_SECONDS
from koord.core.device.model import DeviceOptions
from koord.core.device.vendors import CLASS_OF
from koord.core.engine.scoring import DEFAULT_WEIGHTS, Scoring, ScoringStrategy, Weighed
from koord.core.model.gang_history import MAX_EPISODES
from koord.core.model.gangs import DEFAULT_HOLD_SECONDS, DEFAULT_WAIT_SECONDS, MatchPolicy
from koord.core.model.patience import Patience
from koord.core.plugins.scarce_resources import ScarceRules
from koord.core.quota.model import BUILT_IN_NAMESPACES, QuotaOptions, TerminatingUse
from koord.core.reservation.model import IgnoredResources
from koord.kube.reflector import WatchTimes
from koord.runtime.logs import LogFormat

_MAX_BYTES = 64 * 1024
_DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


class InvalidConfiguration(ValueError):  # noqa: N818 - what it says is what is wrong
    """The configuration is invalid; ``problems`` has one line for each, field first."""

    def __init__(self, source: str, problems: list[str]) -> None:
        super().__init__("\n  ".join([f"{source} cannot be used:", *problems]))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address and a port to listen on; port 0 lets the system choose.

    With ``or_free`` any free port will do where this one is taken: nobody has chosen it.
    """

    host: str
    port: int
    or_free: bool = False


def parse_address(text: object) -> Address:
    """Parse ``127.0.0.1:8080`` or ``[::1]:8080``; raise ValueError for anything else."""
    host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ValueError("is not ADDRESS:PORT, such as 127.0.0.1:8080")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Address(str(ip_address(host)), int(port))


def parse_seconds(text: object) -> float:
    """Parse ``120s`` or ``1m30s``; raise ValueError for anything else."""
    if isinstance(text, float):
        return text
    seconds = parse_duration_seconds(text) if isinstance(text, str) else None
    if seconds is None:
        raise ValueError("is not a duration, such as 120s")
    return float(seconds)


class _Section(Documented):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


Weight: TypeAlias = Annotated[int, Field(ge=1, le=100, strict=True)]


class ResourceScore(_Section):
    """How one resource is scored."""

    type: ScoringStrategy
    """Spread (LeastAllocated) or pack (MostAllocated)."""
    weight: Weight = 1
    """How much it counts beside other resources."""


Weights: TypeAlias = Annotated[Mapping[str, ResourceScore], Field(max_length=64)]


class FitPlusSettings(_Section):
    """A second score of resources that pods ask for, as Koordinator's NodeResourcesFitPlus."""

    resources: Weights = Field(default_factory=dict)
    """Each is scored for pods that request it; off without resources."""
    weight: Weight = 1
    """How much this score counts beside the first."""


class ScarceSettings(_Section):
    """Resources to keep for pods that ask for them, as Koordinator's ScarceResourceAvoidance."""

    resources: Annotated[frozenset[str], Field(max_length=64)] = frozenset()
    """Pods that request none of these avoid nodes that have them; `nvidia.com/gpu` stands for all
    GPUs and NPUs. Off without resources."""
    weight: Weight = 1
    """How much this score counts beside the others."""


def _weigh(scores: Mapping[str, ResourceScore]) -> dict[str, Weighed]:
    return {name: Weighed(score.type, score.weight) for name, score in scores.items()}


def _default_scoring() -> dict[str, ResourceScore]:
    return {
        resource: ResourceScore(type=weighed.strategy, weight=weighed.weight)
        for resource, weighed in DEFAULT_WEIGHTS.items()
    }


_DEFAULT_ASK: Final = 300.0
_DEFAULT_GRACE: Final = 30.0
"""``terminationGracePeriodSeconds`` of pods that do not say it."""
Seconds = Annotated[float, BeforeValidator(parse_seconds)]


_Namespace = Annotated[str, Field(max_length=63, pattern=_DNS_SUBDOMAIN)]


class QuotaSettings(_Section):
    """How quotas are enforced; names and defaults are those of Koordinator's ElasticQuota plugin.

    ``reclaim``, ``built_in_namespaces``, ``reclaim_dry_run``, ``reclaim_budget_grace`` and
    ``max_reclaims_per_minute`` are ours.
    """

    enable_runtime_quota: bool = Field(default=True, strict=True)
    """A quota may use its fair share instead of its max."""
    reclaim: bool = Field(default=True, strict=True)
    """Whether use beyond the share is reclaimed for those who are entitled to it, so that `min` is
    guaranteed; off by default with `compat: koordinator`."""
    monitor_all_quotas: bool = Field(default=True, strict=True)
    """Koordinator's name of `reclaim`."""
    guarantee_usage: bool = Field(default=False, strict=True)
    """A quota keeps what it uses, and nobody lends its idle min; Koordinator's gate
    ElasticQuotaGuaranteeUsage."""
    disable_default_quota: bool = Field(default=False, strict=True)
    """Only pods that name a quota by label are limited, whatever their namespace; Koordinator's
    gate DisableDefaultQuota."""
    support_parent_quota_submit_pod: bool = Field(default=False, strict=True)
    """Pods may name a quota that has children; Koordinator's gate SupportParentQuotaSubmitPod."""
    ignore_pod_overhead: bool = Field(default=False, strict=True)
    """The overhead of runtime classes does not count; Koordinator's gate
    ElasticQuotaIgnorePodOverhead."""
    ignore_terminating_pod: bool = Field(default=False, strict=True)
    """A pod that is being deleted counts until its grace period ends, and no longer until it is
    gone; Koordinator's gate ElasticQuotaIgnoreTerminatingPod."""
    immediate_ignore_terminating_pod: bool = Field(default=False, strict=True)
    """A pod that is being deleted does not count; Koordinator's gate
    ElasticQuotaImmediateIgnoreTerminatingPod."""
    delay_evict_time: Seconds = Field(default=120.0, ge=0)
    """How long a quota uses too much before pods are evicted."""
    revoke_pod_interval: Seconds = Field(default=1.0, gt=0)
    """How often that is checked."""
    reclaim_dry_run: bool = Field(default=False, strict=True)
    """Who would be evicted is said in events of the quotas, and nobody is."""
    reclaim_budget_grace: Seconds | None = Field(default=None, ge=0)
    """How long PodDisruptionBudgets protect pods whose room others are entitled to, if no other
    pods can go; then they are deleted. By default five times `delayEvictTime`."""
    max_reclaims_per_minute: int = Field(default=0, ge=0, le=100_000, strict=True)
    """How many pods a quota may lose within a minute before the next unit has to wait; 0 is no
    limit."""
    built_in_namespaces: tuple[_Namespace, ...] = Field(
        default=BUILT_IN_NAMESPACES, max_length=1024
    )
    """Pods of these namespaces may name Koordinator's built-in quotas, which have no limit."""

    @property
    def options(self) -> QuotaOptions:
        """What of the rules is chosen here."""
        return QuotaOptions(
            limits_by_share=self.enable_runtime_quota,
            guarantees_usage=self.guarantee_usage,
            has_default_quota=not self.disable_default_quota,
            parents_take_pods=self.support_parent_quota_submit_pod,
            counts_overhead=not self.ignore_pod_overhead,
            terminating_use=self.terminating_use,
            built_in_namespaces=self.built_in_namespaces,
        )

    @property
    def terminating_use(self) -> TerminatingUse:
        if self.immediate_ignore_terminating_pod:
            return TerminatingUse.NOT
        if self.ignore_terminating_pod:
            return TerminatingUse.FOR_GRACE_PERIOD
        return TerminatingUse.UNTIL_GONE

    @property
    def budget_grace(self) -> float:
        """What ``reclaim_budget_grace`` is in effect."""
        written = self.reclaim_budget_grace
        return 5.0 * self.delay_evict_time if written is None else written

    @model_validator(mode="after")
    def _have_one_meaning(self) -> Self:
        both = {"reclaim", "monitor_all_quotas"}
        if both <= self.model_fields_set and self.reclaim is not self.monitor_all_quotas:
            raise ValueError("reclaim and monitorAllQuotas are the same; write one of them")
        return self

    def reclaims(self, *, by_default: bool) -> bool:
        """Whether over-use is reclaimed: that needs shares to compare with."""
        written = self.model_fields_set & {"reclaim", "monitor_all_quotas"}
        is_on = self.reclaim and self.monitor_all_quotas if written else by_default
        return is_on and self.enable_runtime_quota


class UnisolatedShares(StrEnum):
    """What pods do that share a GPU without isolation; both say so in their condition."""

    START = "Start"
    WAIT = "Wait"


class DeviceSettings(_Section):
    """How devices are given out."""

    recovery_seconds: Seconds = Field(default=RECOVERY_SECONDS, ge=0)
    """A device that was unhealthy is used again after it was healthy this long."""
    shares_without_isolation: UnisolatedShares = UnisolatedShares.START
    """Whether pods that share a GPU without isolation start or wait."""

    @property
    def options(self) -> DeviceOptions:
        waits = self.shares_without_isolation is UnisolatedShares.WAIT
        return DeviceOptions(self.recovery_seconds, waits)


_QUALIFIED = re.compile(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_NATIVE = re.compile(r"(.*\.)?kubernetes\.io")


def _check_extended(name: str) -> str:
    if not _QUALIFIED.fullmatch(name) or _NATIVE.fullmatch(name.partition("/")[0]):
        raise ValueError("must be an extended resource, such as example.com/gpu")
    return name


def _check_group(name: str) -> str:
    if not re.fullmatch(_DNS_SUBDOMAIN, name) or _NATIVE.fullmatch(name):
        raise ValueError("must be what is before the slash of extended resources")
    return name


_Extended = Annotated[str, Field(max_length=317), AfterValidator(_check_extended)]
_Group = Annotated[str, Field(max_length=253), AfterValidator(_check_group)]


class ReservationSettings(_Section):
    """How reservations are used; names and rules are those of Koordinator's Reservation plugin."""

    ignored_resources: Annotated[frozenset[_Extended], Field(max_length=64)] = frozenset()
    """Resources of which pods may use more than is reserved, whatever the policy: something else
    accounts for them."""
    ignored_resource_groups: Annotated[frozenset[_Group], Field(max_length=64)] = frozenset()
    """The same, by what is before the slash of their names."""

    @property
    def ignored(self) -> IgnoredResources:
        return IgnoredResources(self.ignored_resources, self.ignored_resource_groups)


class PreemptionSettings(_Section):
    """Whether units of higher priority preempt, and how."""

    enabled: bool = Field(default=True, strict=True)
    """Whether units of higher priority preempt others at all."""
    min_runtime: Seconds = Field(default=0.0, ge=0)
    """Pods that run for less are neither preempted nor reclaimed. For a gang it doubles each time
    that it was within 24 hours."""
    max_per_day: int = Field(default=0, ge=0, le=MAX_EPISODES)
    """A gang that was preempted this often within 24 hours is not evicted as a whole for others
    than system priorities; 0 is no limit."""
    stuck_after: Seconds = Field(default=60.0, gt=0)
    """Room of pods that leave is counted on until this long after their grace period; then they
    count as staying, and another plan is made if there is one."""
    grace_limit: Seconds | None = Field(default=None, ge=1)
    """How long at most victims may take to stop after they are deleted: longer grace periods are
    cut. By default twice `softEvictionLimit`, at least 30 s."""
    soft_eviction_limit: Seconds = Field(default=_DEFAULT_ASK, ge=0)
    """How long at most victims may take to end by themselves, if their annotation
    `operators.koordinator.sh/soft-eviction-time` wants time; 0: they get none."""
    respect_budgets: bool = Field(default=False, strict=True)
    """Victims are evicted, so that PodDisruptionBudgets may refuse it; otherwise they are deleted,
    as by kube-scheduler, and budgets only count in the choice of victims."""

    @property
    def most_grace(self) -> float:
        """What ``grace_limit`` is in effect; where nobody may ask for time, grace is as usual."""
        if self.grace_limit is not None:
            return self.grace_limit
        soft_limit: float = self.soft_eviction_limit or _DEFAULT_ASK
        return max(2 * soft_limit, _DEFAULT_GRACE)

    @property
    def patience(self) -> Patience:
        """Until when room is counted on that is being left."""
        return Patience(self.stuck_after, self.most_grace, self.soft_eviction_limit)


class Settings(_Section):
    """The whole configuration; defaults suit a single machine."""

    api_version: Literal["operators.koordinator.sh/v1alpha1"] = "operators.koordinator.sh/v1alpha1"
    """Must be given."""
    kind: Literal["OperatorConfiguration"] = "OperatorConfiguration"
    """Must be given."""
    scheduler_name: str = Field(default="koord-scheduler", max_length=253, pattern=_DNS_SUBDOMAIN)
    """Pods with this `spec.schedulerName` are bound by the operators."""
    scoring: Weights = Field(default_factory=_default_scoring)
    """How nodes are compared, by resource; replaces the built-in strategies as a whole."""
    resource_fit_plus: FitPlusSettings = FitPlusSettings()
    scarce_resources: ScarceSettings = ScarceSettings()
    http_address: Annotated[Address, BeforeValidator(parse_address)] = Address(
        "127.0.0.1", 8080, or_free=True
    )
    """Where metrics and health are served; the manifests set 0.0.0.0:8080. Where nobody sets it and
    that port is taken, any free one is used, which the log says."""
    metrics_authorization: bool = Field(default=False, strict=True)
    """Metrics only for readers with a token and the right to get /metrics."""
    bind_concurrency: int = Field(default=32, ge=1, le=1000, strict=True)
    """How many writes to pods are in flight at the same time. The leader keeps as many connections
    open, 128 at most."""
    watch_timeout: Seconds = Field(default=WatchTimes().most, ge=1, le=300)
    """How long a watch lasts before it is asked for again. One that is silent for a third longer is
    taken for dead, so this is how soon a failure of the network is noticed."""
    default_wait_seconds: int = Field(default=DEFAULT_WAIT_SECONDS, ge=1, strict=True)
    """For gangs that do not say how long they may wait for a place before it is reported."""
    default_match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    """For gangs that do not say which members count."""
    keep_room_seconds: int = Field(default=DEFAULT_HOLD_SECONDS, ge=0, strict=True)
    """How long room is kept for a gang at most, whatever it says; 0 keeps none."""
    elastic_quota: QuotaSettings = QuotaSettings()
    device: DeviceSettings = DeviceSettings()
    reservation: ReservationSettings = ReservationSettings()
    preemption: PreemptionSettings = PreemptionSettings()
    compat: Compat = Compat.NONE
    """Follow Koordinator's behaviour where ours deliberately differs."""
    log_format: LogFormat = LogFormat.TEXT

    @property
    def watch_times(self) -> WatchTimes:
        return WatchTimes(self.watch_timeout)

    @property
    def reclaims_after(self) -> float | None:
        """How many seconds over-use lasts before it is reclaimed; None: it is not."""
        quota = self.elastic_quota
        is_on = quota.reclaims(by_default=self.compat is not Compat.KOORDINATOR)
        return quota.delay_evict_time if is_on else None

    @property
    def evicts(self) -> bool:
        """Whether pods are evicted for others; gangs restart as a whole with any settings."""
        return self.reclaims_after is not None or self.preemption.respect_budgets

    def make_scoring(self) -> Scoring:
        plus = self.resource_fit_plus
        return Scoring(_weigh(self.scoring), _weigh(plus.resources), plus.weight)

    @property
    def scarce_rules(self) -> ScarceRules:
        scarce = self.scarce_resources
        class_of = None if self.compat is Compat.KOORDINATOR else CLASS_OF
        return ScarceRules(scarce.resources, scarce.weight, class_of)


def load_settings(path: Path) -> Settings:
    """Read and validate a configuration file. Raises InvalidConfiguration with all problems."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidConfiguration(str(path), [str(error.strerror)]) from error
    if len(text) > _MAX_BYTES:
        raise InvalidConfiguration(str(path), [f"it is larger than {_MAX_BYTES} bytes"])
    return parse_settings(text, str(path))


def parse_settings(text: bytes | str, source: str) -> Settings:
    try:
        document = load_yaml(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidConfiguration(source, [f"it is not YAML: {error}"]) from error
    if not isinstance(document, dict):
        raise InvalidConfiguration(source, ["it is not one YAML mapping"])
    missing = [
        f"{field}: must be given" for field in ("apiVersion", "kind") if field not in document
    ]
    if missing:
        raise InvalidConfiguration(source, missing)
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        raise InvalidConfiguration(source, _problems(error)) from error


def _problems(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(map(str, problem['loc']))}: {_problem_of(problem)}"
        for problem in error.errors(include_url=False)
    ]


def _problem_of(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        return "no such field"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{reprlib.repr(problem['input'])} {message}"
