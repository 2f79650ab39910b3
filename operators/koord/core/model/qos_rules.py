"""Which combinations of QoS, priority class and resources are refused, as values.

Koordinator refuses pods for these, and so do our policy and ``koord lint``: all have the rules from
here. Amounts are what the whole pod requests effectively, in milli-CPU and bytes. What a manifest
is, and where in it something stands, is not known here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koord.core.model.koordinator_class import (
    KoordinatorClass,
    KoordinatorQos,
    find_raw_class,
    find_raw_qos,
    is_tier_resource,
)
from koord.core.model.units import CPU

_MILLI: Final = 1000
ALLOWED_CLASSES: Final[Mapping[KoordinatorQos, frozenset[KoordinatorClass | None]]] = {
    KoordinatorQos.BE: frozenset(
        {KoordinatorClass.MID, KoordinatorClass.BATCH, KoordinatorClass.FREE}
    ),
    KoordinatorQos.LSR: frozenset({KoordinatorClass.PROD}),
}
"""Classes that a QoS may be combined with, None for no class; all with any other QoS."""
WHOLE_CPUS: Final = frozenset({KoordinatorQos.LSE, KoordinatorQos.LSR})
"""The QoS whose pods get whole CPUs for themselves."""


class QosRule(StrEnum):
    """A rule that a pod breaks."""

    FORBIDDEN_COMBINATION = "ForbiddenCombination"
    CPUS_REQUIRED = "CPUsRequired"
    WHOLE_CPUS_REQUIRED = "WholeCPUsRequired"
    BEST_EFFORT_REQUIRED = "BestEffortRequired"


@dataclass(frozen=True, slots=True)
class QosProblem:
    """A rule that is broken, and by what; amounts in milli-CPU."""

    rule: QosRule
    qos: KoordinatorQos | None
    koordinator_class: KoordinatorClass | None = None
    cpus: int = 0
    resources: tuple[str, ...] = ()
    """Names of the resources that the rule is about."""


def is_allowed(qos: KoordinatorQos | None, koordinator_class: KoordinatorClass | None) -> bool:
    """Whether a QoS and a class, both as a pod says them, may be combined."""
    return qos is None or koordinator_class in ALLOWED_CLASSES.get(qos, {koordinator_class})


def find_qos_problems(
    labels: Mapping[str, str], priority: int, requests: Mapping[str, int]
) -> Iterator[QosProblem]:
    """Yield the rules that a pod breaks."""
    qos, raw_class = find_raw_qos(labels), find_raw_class(labels, priority)
    if not is_allowed(qos, raw_class):
        yield QosProblem(QosRule.FORBIDDEN_COMBINATION, qos, raw_class)
    cpus = requests.get(CPU, 0)
    if qos in WHOLE_CPUS and cpus == 0:
        yield QosProblem(QosRule.CPUS_REQUIRED, qos, raw_class)
    elif qos in WHOLE_CPUS and cpus % _MILLI:
        yield QosProblem(QosRule.WHOLE_CPUS_REQUIRED, qos, raw_class, cpus)
    batch = tuple(
        sorted(name for name in requests if is_tier_resource(name, KoordinatorClass.BATCH))
    )
    if batch and qos is not KoordinatorQos.BE:
        yield QosProblem(QosRule.BEST_EFFORT_REQUIRED, qos, raw_class, resources=batch)


def describe(problem: QosProblem) -> str:
    """Return what is wrong, and the way out."""
    match problem.rule:
        case QosRule.FORBIDDEN_COMBINATION:
            wanted = " or ".join(
                sorted(str(each) for each in ALLOWED_CLASSES.get(problem.qos, ()) if each)  # type: ignore[arg-type]
            )
            has = problem.koordinator_class or "no priority class"
            return (
                f"QoS {problem.qos} cannot be combined with {has}: set priorityClassName to that "
                f"of {wanted}, or choose another QoS"
            )
        case QosRule.CPUS_REQUIRED:
            return (
                f"pods of QoS {problem.qos} get whole CPUs for themselves, and this one requests "
                "none: request CPUs, or choose LS"
            )
        case QosRule.WHOLE_CPUS_REQUIRED:
            cpus = f"{problem.cpus / _MILLI:g}"
            return (
                f"pods of QoS {problem.qos} get whole CPUs for themselves, and this one requests "
                f"{cpus}: request a whole number, or choose LS"
            )
        case QosRule.BEST_EFFORT_REQUIRED:
            return (
                f"{', '.join(problem.resources)} is for pods of QoS BE only: set the label "
                "koordinator.sh/qosClass to BE, or request cpu and memory"
            )
