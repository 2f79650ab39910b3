"""What is known of the use of a node, whoever reported it.

Amounts are in the units of ``core.model.units``. Which report counts, and what follows from it, is
decided elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from koord.core.model.koordinator_class import KoordinatorClass
from koord.core.model.pods import Pod
from koord.core.model.units import Amounts

DEFAULT_INTERVAL: Final = 60.0
"""Seconds between two reports, if a report does not say."""
DEFAULT_WINDOW: Final = 300.0
"""Seconds over which use is averaged, if a report does not say."""
EXPIRATION: Final = 180.0
"""After this many seconds a report counts as outdated, by default."""


class LoadSource(StrEnum):
    """Who reported the use of a node; an earlier one is preferred to a later one."""

    NODE_METRIC = "NodeMetric"
    """Koordinator's agent, as a NodeMetric object."""
    METRICS_API = "MetricsAPI"
    """A server of ``metrics.k8s.io``, such as metrics-server."""


class Aggregation(StrEnum):
    """How samples are summed up; the names are those of NodeMetric."""

    AVG = "avg"
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"


NAME: Final = "loadaware"
"""The plugin to which pods and nodes say something about their load."""


@dataclass(frozen=True, slots=True)
class PodLoad:
    """What a pod really uses, and the class that the report gives it; None: it does not say."""

    usage: Amounts
    koordinator_class: KoordinatorClass | None = None


@dataclass(frozen=True, slots=True)
class HostApplicationLoad:
    """What runs on a node beside pods and the system, its class as reported; None: it has none."""

    usage: Amounts
    koordinator_class: KoordinatorClass | None = None


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A report about one node.

    ``updated`` is when it was made, in seconds since the epoch; 0: it does not say, and counts as
    outdated. ``is_reported`` is False for a report without numbers. ``aggregates`` are by kind and
    seconds; ``pods`` by ``namespace/name``.
    """

    node: str
    source: LoadSource = LoadSource.NODE_METRIC
    updated: float = 0.0
    interval: float = DEFAULT_INTERVAL
    window: float = DEFAULT_WINDOW
    """Seconds over which ``usage`` is averaged."""
    is_reported: bool = True
    usage: Amounts = field(default_factory=dict)
    """All that runs on the node."""
    system: Amounts = field(default_factory=dict)
    """What runs there beside pods."""
    aggregates: Mapping[Aggregation, Mapping[float, Amounts]] = field(default_factory=dict)
    pods: Mapping[str, PodLoad] = field(default_factory=dict)
    host_applications: tuple[HostApplicationLoad, ...] = ()
    reclaimable: Amounts = field(default_factory=dict)
    """What pods of class prod request and are not expected to need."""
    is_readable: bool = True
    """False: its numbers of the node cannot be read, or are none that a machine can have."""

    def is_outdated(self, now: float, seconds: float = EXPIRATION) -> bool:
        """Whether it is older than that at a time; without a time of its own it always is.

        One from as far in the future would count for ever: its clock is wrong.
        """
        return self.updated <= 0 or abs(now - self.updated) >= seconds


@dataclass(frozen=True, slots=True)
class LoadHints:
    """What counts of a pod beside its requests; times are in seconds since the epoch.

    ``factors``, ``after_scheduled`` and ``after_initialized`` are what its annotations say; None:
    nothing. ``scheduled`` and ``initialized`` are 0 before that.
    """

    koordinator_class: KoordinatorClass = KoordinatorClass.PROD
    limits: tuple[tuple[str, int], ...] = ()
    factors: tuple[tuple[str, int], ...] = ()
    after_scheduled: int | None = None
    after_initialized: int | None = None
    scheduled: float = 0.0
    initialized: float = 0.0


NO_HINTS: Final = LoadHints()


def hints_of(pod: Pod) -> LoadHints:
    """Return what counts of a pod beside its requests."""
    for name, hints in pod.extensions:
        if name == NAME and isinstance(hints, LoadHints):
            return hints
    return NO_HINTS
