"""The terms of a published amount: a sum that people can check.

Whatever changes an amount is a term with its sign, limits included, so that the terms of an amount
always add up to it. How terms are called for people is decided elsewhere.
"""

from dataclasses import dataclass
from enum import StrEnum


class AmountTermKind(StrEnum):
    """What a term stands for."""

    CAPACITY = "Capacity"
    """What the node has."""
    MARGIN = "Margin"
    """What is kept free, or with a percentage above 100 promised beyond the capacity."""
    SYSTEM = "System"
    """What runs on the node beside pods."""
    HOST_APPLICATIONS = "HostApplications"
    """Applications outside of pods whose class is higher."""
    RESERVED = "Reserved"
    """What the kubelet or the annotation of the node reserves, as far as the system does not use
    it."""
    USED = "Used"
    """Measured use of pods whose class is higher."""
    EXCLUSIVE = "Exclusive"
    """CPUs that pods have for themselves, whether they use them or not."""
    UNMEASURED = "Unmeasured"
    """Requests of pods that no report shows."""
    DANGLING = "Dangling"
    """Measured use of pods that the API server does not list on the node."""
    REQUESTED = "Requested"
    """Requests of pods whose class is higher."""
    PEAK = "Peak"
    """The larger of use and request of each pod whose class is higher."""
    RECLAIMABLE = "Reclaimable"
    """What pods of class prod request and are not expected to need."""
    IN_USE = "InUse"
    """What of that is in use now."""
    UNALLOCATED = "Unallocated"
    """A part of what pods of class prod do not request."""
    STATIC_PART = "StaticPart"
    """A fixed part of the node."""
    PRESSURE = "Pressure"
    """What would bring the node to where pods are evicted."""
    FLOOR = "Floor"
    """Nothing is offered below zero."""
    LIMIT = "Limit"
    """What exceeds the percentage of the capacity that may be offered."""
    NORMALIZATION = "Normalization"
    """What faster CPUs are worth more."""
    THIRD_PARTY = "ThirdParty"
    """What others use of the batch resources of the node, such as YARN."""
    HELD_BACK = "HeldBack"
    """What is published more slowly, so that the offer is steady."""


@dataclass(frozen=True, slots=True)
class AmountTerm:
    """One term: a kind and a signed amount, milli-CPU or bytes."""

    kind: AmountTermKind
    amount: int


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A published resource, and the terms that add up to its amount."""

    resource: str
    terms: tuple[AmountTerm, ...] = ()

    @property
    def value(self) -> int:
        return sum(term.amount for term in self.terms)

    def amount_of(self, kind: AmountTermKind) -> int:
        return sum(term.amount for term in self.terms if term.kind is kind)


class TermSum:
    """Adds up terms; those of zero are left out, except for the first."""

    def __init__(self, kind: AmountTermKind, amount: int) -> None:
        self.value = amount
        self._terms = [AmountTerm(kind, amount)]

    def add(self, kind: AmountTermKind, amount: int) -> None:
        if amount:
            self._terms.append(AmountTerm(kind, amount))
            self.value += amount

    def at_least_zero(self) -> None:
        self.add(AmountTermKind.FLOOR, max(0, -self.value))

    def at_most(self, kind: AmountTermKind, limit: int) -> None:
        self.add(kind, min(0, limit - self.value))

    def make(self, resource: str) -> Breakdown:
        return Breakdown(resource, tuple(self._terms))
