"""ElasticQuota: a share of the cluster that may be lent and borrowed.

Compatible with the ElasticQuota of Koordinator and of scheduler-plugins. The tree, the weights and
the namespaces of a quota stand in labels and annotations (``keys.quota``); what several quotas must
satisfy together is no matter of one object and is reported as a condition.
"""

from typing import ClassVar, Final, Self

from pydantic import model_validator

from koord.api.model import Model, Rule, refuse
from koord.api.podgroup import SIGS_APPROVAL, SIGS_GROUP
from koord.api.resource import (
    AGE,
    Conditions,
    Int64,
    KeptSpec,
    Names,
    ObservedResources,
    PrinterColumn,
    Resource,
    ResourceList,
    reason_column,
)

# The server compares these names only. A rule over all names costs too much for servers before
# 1.34, which take any quantity for three megabytes long and would refuse the whole CRD; a quota
# with min above max in another resource is accepted there and reported as a condition.
_COMPARED: Final = (
    "cpu",
    "memory",
    "ephemeral-storage",
    "pods",
    "nvidia.com/gpu",
    "amd.com/gpu",
    "dcu.com/gpu",
    "huawei.com/npu-core",
    "koordinator.sh/gpu",
    "koordinator.sh/gpu.shared",
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory",
    "koordinator.sh/gpu-memory-ratio",
    "koordinator.sh/rdma",
    "koordinator.sh/fpga",
    "kubernetes.io/batch-cpu",
    "kubernetes.io/batch-memory",
    "kubernetes.io/mid-cpu",
    "kubernetes.io/mid-memory",
)


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
    """Say that a quota guarantees more than it allows."""
    return f"min must not exceed max for {resource}: raise max or lower min"


class ElasticQuotaSpec(Model):
    """What the quota is guaranteed and what it may grow to."""

    rules = tuple(_min_within_max(resource) for resource in _COMPARED)

    min: ResourceList | None = None
    """What the quota can always get, also when others want it."""
    max: ResourceList | None = None
    """What the quota never exceeds, also when the cluster is idle."""

    @model_validator(mode="after")
    def _check_min_within_max(self) -> Self:
        limits = self.max or {}
        for name, guarantee in sorted((self.min or {}).items()):
            if name in limits and guarantee > limits[name]:
                raise refuse(min_above_max(name), "min", name)
        return self


class ElasticQuotaStatus(Model):
    """What the quota uses and whether its settings are in force."""

    used: ObservedResources | None = None
    """What the pods of the quota use, and those of all quotas below."""
    runtime: ObservedResources | None = None
    """What the quota is entitled to now."""
    request: ObservedResources | None = None
    """What is asked of the quota; its min, if that is more and it does not lend."""
    guaranteed: ObservedResources | None = None
    """What the quota is guaranteed where use is guaranteed."""
    allocated: ObservedResources | None = None
    """What its pods use and the quotas below are guaranteed, where use is guaranteed."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """What is the matter with the quota: Accepted, Ready, ConfigInvalid, Borrowing, Lending,
    OverEntitlement, MinScaled, UnmanagedUsage."""
    last_valid_spec: KeptSpec | None = None
    """The settings that were valid last, those of the spec if they are: in force, unless the parent
    is gone."""


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
            PrinterColumn("CPU-Min", ".spec.min.cpu"),
            PrinterColumn("CPU-Max", ".spec.max.cpu"),
            PrinterColumn("CPU-Used", ".status.used.cpu"),
            PrinterColumn("Memory-Max", ".spec.max.memory", priority=1),
            PrinterColumn("Memory-Used", ".status.used.memory", priority=1),
            reason_column("Ready"),
            reason_column("Accepted", priority=1),
            AGE,
        ),
    )

    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    """What the quota is guaranteed and what it may grow to."""
    status: ElasticQuotaStatus = ElasticQuotaStatus()
    """What the quota uses and whether its settings are in force."""
