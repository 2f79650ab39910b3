"""The priority class that Koordinator gives every pod: prod, mid, batch or free.

Its label says it, else its priority, else its quality of service. Nothing here knows what a class
is good for, or how pods are read.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from koord.core.model.pods import PodShape
from koord.core.model.units import CPU, MEMORY

PRIORITY_CLASS_LABEL: Final = "koordinator.sh/priority-class"
QOS_LABEL: Final = "koordinator.sh/qosClass"


class KoordinatorClass(StrEnum):
    """A priority class, by the name that it has in labels and metrics."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"


_BY_NAME: Final[Mapping[str, KoordinatorClass]] = {str(each): each for each in KoordinatorClass}
_BY_PRIORITY: Final = (
    (range(9000, 10000), KoordinatorClass.PROD),
    (range(7000, 8000), KoordinatorClass.MID),
    (range(5000, 6000), KoordinatorClass.BATCH),
    (range(3000, 4000), KoordinatorClass.FREE),
)
_BY_QOS: Final[Mapping[str, KoordinatorClass]] = {
    "SYSTEM": KoordinatorClass.PROD,
    "LSE": KoordinatorClass.PROD,
    "LSR": KoordinatorClass.PROD,
    "LS": KoordinatorClass.PROD,
    "BE": KoordinatorClass.BATCH,
}


def find_class(
    labels: Mapping[str, str], priority: int, *, is_best_effort: bool
) -> KoordinatorClass:
    """Return the class of a pod. An unknown label counts as none, and so does its priority then."""
    name = labels.get(PRIORITY_CLASS_LABEL)
    named = _BY_NAME.get(name) if name is not None else find_class_by_priority(priority)
    if named is not None:
        return named
    by_qos = _BY_QOS.get(labels.get(QOS_LABEL, ""))
    if by_qos is not None:
        return by_qos
    return KoordinatorClass.BATCH if is_best_effort else KoordinatorClass.PROD


def is_best_effort(shape: PodShape, limits: Mapping[str, int]) -> bool:
    """Whether a pod neither requests nor limits CPU or memory, so that its QoS is BestEffort."""
    overhead = dict(shape.overhead)
    requested = any(
        name in {CPU, MEMORY} and amount > overhead.get(name, 0) for name, amount in shape.requests
    )
    return not requested and not limits.get(CPU) and not limits.get(MEMORY)


def parse_class(name: str) -> KoordinatorClass | None:
    """Return the class of a name; None for an unknown one."""
    return _BY_NAME.get(name)


def find_class_by_priority(priority: int) -> KoordinatorClass | None:
    """Return the class whose range a priority is in; None for other priorities."""
    return next((band for values, band in _BY_PRIORITY if priority in values), None)
