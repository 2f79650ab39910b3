"""How quotas are enforced: the section ``elasticQuota`` of the configuration."""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import Field, model_validator
from typing_extensions import override

from koord.core.quota.model import BUILT_IN_NAMESPACES, QuotaOptions, TerminatingUse
from koord.domains.section import DNS_SUBDOMAIN, Seconds, Section

_Namespace = Annotated[str, Field(max_length=63, pattern=DNS_SUBDOMAIN)]


class QuotaSettings(Section):
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

    @override
    def plan_options(self) -> Iterable[object]:
        yield self.options
