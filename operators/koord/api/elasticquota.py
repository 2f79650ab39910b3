"""ElasticQuota: a share of the cluster that may be lent and borrowed.

Compatible with the ElasticQuota of Koordinator and of scheduler-plugins. The tree, the weights and
the namespaces of a quota are in labels and annotations (``keys.quota``); rules for several quotas
together are checked by the operators and reported as a condition.
"""

from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from koord.api.model import Model, Rule, refuse
from koord.api.podgroup import SIGS_APPROVAL, SIGS_GROUP
from koord.api.queue import QueueMemoryStatus
from koord.api.resource import (
    AGE,
    Conditions,
    Int32,
    Int64,
    KeptSpec,
    Names,
    ObservedResources,
    PrinterColumn,
    Resource,
    ResourceList,
    Time,
    reason_column,
)
from koord.api.resource_names import KNOWN_RESOURCES
from koord.api.usage_budget import BudgetStatus

# The server compares these names only. A rule over all names costs too much for servers before
# 1.34, which take any quantity for three megabytes long and would refuse the whole CRD; a quota
# with min above max in another resource is accepted there and reported as a condition.
_COMPARED: Final = KNOWN_RESOURCES


def _amount(field: str) -> str:
    # quantity(string(x)) would serve both types, but the server cannot bound what it costs.
    return f"(type({field}) == int ? quantity('0').add({field}) : quantity({field}))"


def _min_within_max(resource: str) -> Rule:
    low, high = f"self.min['{resource}']", f"self.max['{resource}']"
    return Rule(
        f"!has(self.min) || !has(self.max) || !('{resource}' in self.min) "
        f"|| !('{resource}' in self.max) "
        f"|| {_amount(low)}.compareTo({_amount(high)}) <= 0",
        min_above_max(resource),
        field_path=f".min['{resource}']",
    )


def min_above_max(resource: str) -> str:
    return f"min must not exceed max for {resource}: raise max or lower min"


_GPU: Final = r"nvidia\.com/gpu"
"""The resource of the columns of ``kubectl get``: it is scarce, and a column has one path."""


class ElasticQuotaSpec(Model):
    """The guaranteed and the largest size of the quota."""

    rules = tuple(_min_within_max(resource) for resource in _COMPARED)

    min: ResourceList | None = None
    """The amounts that the quota can always get, even when others want them."""
    max: ResourceList | None = None
    """The amounts that the quota never exceeds, even when the cluster is idle."""

    @model_validator(mode="after")
    def _check_min_within_max(self) -> Self:
        limits = self.max or {}
        for name, guarantee in sorted((self.min or {}).items()):
            if name in limits and guarantee > limits[name]:
                raise refuse(min_above_max(name), "min", name)
        return self


class KeptQuota(Model):
    """The last valid settings of a quota, in the form of the object; the operators' own."""

    min: ObservedResources | None = None
    max: ObservedResources | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class QuotaQueue(Model):
    """What waits in the quota."""

    policy: Annotated[str, Field(max_length=16)] | None = None
    """Who may start while an earlier unit waits for room: Strict, BestEffort or Backfill."""
    pending: Int32 = 0
    """Units that wait."""
    running: Int32 | None = None
    """Units that have started; absent where nothing limits them."""
    head: Annotated[str, Field(max_length=1024)] | None = None
    """The unit whose turn it is."""
    head_since: Time | None = None
    """Since when it is refused."""
    reservations: Int32 = 0
    """For how many units room is reserved."""


class ElasticQuotaStatus(Model):
    """Usage and fair share of the quota, and whether its settings are in force."""

    used: ObservedResources | None = None
    """Usage of the pods of the quota and of all quotas below."""
    runtime: ObservedResources | None = None
    """The current fair share of the quota."""
    request: ObservedResources | None = None
    """Requests to the quota; its min, if that is more and it does not lend."""
    max: dict[str, str] | None = None
    """The largest size that is in force, for people: an amount, or `unlimited`."""
    state: str | None = None
    """One word: Invalid, NotActive, OverEntitlement, Borrowing, Lending or WithinMin."""
    guaranteed: ObservedResources | None = None
    """The guaranteed amounts where usage is guaranteed."""
    allocated: ObservedResources | None = None
    """Usage of its pods plus guarantees of the quotas below, where usage is guaranteed."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """Conditions of the quota: Accepted, Ready, ConfigInvalid, Borrowing, Lending,
    OverEntitlement, MinScaled, UnmanagedUsage, Terminating, Enforced."""
    queue: QuotaQueue | None = None
    """What waits in it, as of the last minute; absent where nothing does."""
    last_valid_spec: KeptSpec | None = None
    """The last valid settings, which are those of the spec if valid. They are in force unless the
    parent is gone."""
    queue_memory: QueueMemoryStatus | None = None
    """What is remembered of its queue."""
    budget: BudgetStatus | None = None
    """What it has used of its GPU hours of this month, if it has a budget."""


class ElasticQuota(Resource):
    """A share of the cluster with a guaranteed and a largest size."""

    names: ClassVar = Names(
        group=SIGS_GROUP,
        kind="ElasticQuota",
        plural="elasticquotas",
        short=("eq",),
        namespaced=True,
        approval=SIGS_APPROVAL,
        columns=(
            PrinterColumn("Parent", r".metadata.labels.quota\.scheduling\.koordinator\.sh/parent"),
            PrinterColumn("State", ".status.state", description="What matters most."),
            PrinterColumn("GPU-Min", rf".spec.min.{_GPU}", description="Guaranteed."),
            PrinterColumn("GPU-Max", rf".status.max.{_GPU}", description="In force."),
            PrinterColumn("GPU-Used", rf".status.used.{_GPU}"),
            PrinterColumn(
                "GPU-Entitled", rf".status.runtime.{_GPU}", description="Its present fair share."
            ),
            PrinterColumn("CPU-Min", ".spec.min.cpu", priority=1),
            PrinterColumn("CPU-Max", ".status.max.cpu", priority=1),
            PrinterColumn("CPU-Used", ".status.used.cpu", priority=1),
            PrinterColumn("Memory-Max", ".status.max.memory", priority=1),
            PrinterColumn("Memory-Used", ".status.used.memory", priority=1),
            reason_column("Ready", priority=1),
            reason_column("Accepted", priority=1),
            AGE,
        ),
    )

    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    """The guaranteed and the largest size of the quota."""
    status: ElasticQuotaStatus = ElasticQuotaStatus()
    """Usage and fair share of the quota, and whether its settings are in force."""
