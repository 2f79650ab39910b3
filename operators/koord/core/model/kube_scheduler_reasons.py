"""Reasons about what only kube-scheduler can serve; they know no domain."""

from dataclasses import dataclass
from typing import ClassVar

from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import PodReason
from koord.core.model.templates import fill


@dataclass(frozen=True, slots=True)
class LateClaim:
    """A volume claim (``namespace/name``) that is bound with its first pod, and its class."""

    claim: str
    storage_class: str

    def __str__(self) -> str:
        return f"{self.claim} of StorageClass {self.storage_class}"


@dataclass(frozen=True, slots=True)
class KubeSchedulerOnly(PodReason):
    """A pod uses something that only kube-scheduler can serve, in the named fields of its spec.

    ``claims`` are those among them that are bound late. ``members`` have to start together, if it
    does not start alone.
    """

    late: ClassVar = "{claims:?: {claims:list}, bound with its first pod}"
    together: ClassVar = "{members:# member} have to start together"
    change_gang: ClassVar = (
        "Or set the minimum of the gang to 1, if its members may start one by one."
    )
    fields: tuple[str, ...]
    claims: tuple[LateClaim, ...] = ()
    members: int = 1

    @property
    def _claims(self) -> tuple[str, ...]:
        return tuple(late_claim.claim for late_claim in self.claims)

    @property
    def remedy(self) -> str:
        """What lets members start together although one of them uses such a thing."""
        return fill(
            "{claims:?let a pod of its own use {_claims:names} once, which binds the volume, or "
            "use a StorageClass with volumeBindingMode Immediate"
            "|remove {fields:names} from {pod}, or from all that starts with it}",
            self,
        )


@dataclass(frozen=True, slots=True)
class NeedsKubeScheduler(KubeSchedulerOnly):
    """A member uses something that only kube-scheduler supports; the message names the field."""

    code: ClassVar = "NeedsKubeScheduler"
    reason_class: ClassVar = ReasonClass.ELSEWHERE
    is_unschedulable: ClassVar = True
    way_out: ClassVar = (
        "leave `schedulerName` at `default-scheduler` and keep the gate; for gangs see "
        "`PlacementUnknown`"
    )
    says: ClassVar = (
        "{pod} uses {fields:list}, which only kube-scheduler supports{members:; set "
        "spec.schedulerName to default-scheduler and keep our gate: a pod that starts alone is "
        "then released to kube-scheduler when there is room for it"
        "|{late:part}; {together:part}: {remedy}}"
    )
    advises: ClassVar = (
        "{members:Remove {fields:names} from the pod|{remedy:capital}}.",
        (
            "{members:Or set spec.schedulerName to default-scheduler and keep the gate: the "
            "operators then plan the pod, and kube-scheduler binds it.|{change_gang}}"
        ),
    )


@dataclass(frozen=True, slots=True)
class PlacementUnknown(KubeSchedulerOnly):
    """kube-scheduler binds such a pod, and pods that start with it may not be able to follow."""

    code: ClassVar = "PlacementUnknown"
    reason_class: ClassVar = ReasonClass.ELSEWHERE
    meaning: ClassVar = (
        "members have to start together, and only kube-scheduler knows which nodes can serve one "
        "of them: it uses a claim that is bound with its first pod, a ResourceClaim or the like; "
        "the message names it"
    )
    way_out: ClassVar = (
        "let another pod use the claim once, which binds the volume, or use a class with "
        "`volumeBindingMode: Immediate` "
        "([more](compatibility.md#what-is-left-to-kube-scheduler))"
    )
    says: ClassVar = (
        "only kube-scheduler knows which nodes can serve {fields:list} of {pod}{late:part}; "
        "{together:part}, and a pod that is released cannot be held again, so none is released; "
        "{remedy}"
    )
    advises: ClassVar = ("{remedy:capital}.", "{change_gang}")
