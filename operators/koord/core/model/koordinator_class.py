"""The quality of service (QoS) and the priority class that Koordinator gives every pod.

The one derivation of both: who needs a class, a QoS or the band of a priority asks here. A *raw*
value is what the pod says; without one there is a default. Labels come first, then the number of
the priority, then the QoS of Kubernetes. Nothing here knows what a class is good for, or how pods
are read.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from koord.core.model.pods import PodShape
from koord.core.model.units import CPU, MEMORY

PRIORITY_CLASS_LABEL: Final = "koordinator.sh/priority-class"
QOS_LABEL: Final = "koordinator.sh/qosClass"
SUB_PRIORITY_LABEL: Final = "koordinator.sh/priority"


class KoordinatorClass(StrEnum):
    """A priority class, by the name that it has in labels and metrics."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"


class KoordinatorQos(StrEnum):
    """A quality of service, by the name that it has in labels."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"


class KubernetesQos(StrEnum):
    """The quality of service that Kubernetes derives from requests and limits."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


BANDS: Final[Mapping[KoordinatorClass, range]] = {
    KoordinatorClass.PROD: range(9000, 10000),
    KoordinatorClass.MID: range(7000, 8000),
    KoordinatorClass.BATCH: range(5000, 6000),
    KoordinatorClass.FREE: range(3000, 4000),
}
"""The priorities of each class; the PriorityClasses that Koordinator ships have the lowest."""
DEFAULT_PRIORITIES: Final[Mapping[KoordinatorClass, int]] = {
    KoordinatorClass.PROD: 9500,
    KoordinatorClass.MID: 7500,
    KoordinatorClass.BATCH: 5500,
    KoordinatorClass.FREE: 3500,
}
"""What a class counts for where no priority is given."""
TIERS: Final[Mapping[KoordinatorClass, str]] = {
    KoordinatorClass.MID: "mid",
    KoordinatorClass.BATCH: "batch",
}
"""The classes that use what others leave, and how the names of their resources begin."""

_CLASSES: Final[Mapping[str, KoordinatorClass]] = {str(each): each for each in KoordinatorClass}
_QOS: Final[Mapping[str, KoordinatorQos]] = {str(each): each for each in KoordinatorQos}
_OF_KUBERNETES: Final[Mapping[KubernetesQos, KoordinatorQos]] = {
    KubernetesQos.GUARANTEED: KoordinatorQos.LSR,
    KubernetesQos.BURSTABLE: KoordinatorQos.LS,
    KubernetesQos.BEST_EFFORT: KoordinatorQos.BE,
}
_EVICTION_ORDER: Final[Mapping[KoordinatorQos, int]] = {
    KoordinatorQos.BE: 1,
    KoordinatorQos.LS: 2,
    KoordinatorQos.LSR: 3,
    KoordinatorQos.LSE: 4,
    KoordinatorQos.SYSTEM: 4,
}
_NO_QOS_ORDER: Final = 5
_INTEGER: Final = re.compile(
    r"([+-]?)(0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0(?:_?[0-7])*|[1-9](?:_?[0-9])*)"
)
_INT32: Final = range(-(1 << 31), 1 << 31)


def parse_class(name: str) -> KoordinatorClass | None:
    """Return the class of a name; None for an unknown one."""
    return _CLASSES.get(name)


def parse_qos(name: str) -> KoordinatorQos | None:
    """Return the QoS of a name; None for an unknown one."""
    return _QOS.get(name)


def find_class_by_priority(priority: int) -> KoordinatorClass | None:
    """Return the class whose range a priority is in; None for other priorities."""
    return next((band for band, values in BANDS.items() if priority in values), None)


def find_raw_class(labels: Mapping[str, str], priority: int) -> KoordinatorClass | None:
    """Return the class that a pod says, by label or else by number.

    An unknown label counts as none, and the number is not read then.
    """
    name = labels.get(PRIORITY_CLASS_LABEL)
    return find_class_by_priority(priority) if name is None else parse_class(name)


def find_raw_qos(labels: Mapping[str, str]) -> KoordinatorQos | None:
    """Return the QoS that a pod says; None without a label, and for an unknown one."""
    return parse_qos(labels.get(QOS_LABEL, ""))


def find_qos(labels: Mapping[str, str], of_kubernetes: KubernetesQos) -> KoordinatorQos:
    """Return the QoS of a pod: what it says, or what the QoS of Kubernetes stands for."""
    return find_raw_qos(labels) or _OF_KUBERNETES[of_kubernetes]


def find_default_class(qos: KoordinatorQos | None) -> KoordinatorClass:
    """Return the class of pods of a QoS that say none."""
    return KoordinatorClass.BATCH if qos is KoordinatorQos.BE else KoordinatorClass.PROD


def find_class(
    labels: Mapping[str, str], priority: int, *, is_best_effort: bool
) -> KoordinatorClass:
    """Return the class of a pod; ``is_best_effort`` is about its QoS of Kubernetes."""
    of_kubernetes = KubernetesQos.BEST_EFFORT if is_best_effort else KubernetesQos.BURSTABLE
    raw = find_raw_class(labels, priority)
    return raw or find_default_class(find_qos(labels, of_kubernetes))


def find_default_priority(koordinator_class: KoordinatorClass | None) -> int:
    """Return what a class counts for where no priority is given; 0 for no class."""
    return 0 if koordinator_class is None else DEFAULT_PRIORITIES[koordinator_class]


def parse_sub_priority(text: str) -> int | None:
    """Return the number of a priority label, 0 for an empty one; None if it is no number.

    The prefixes 0x, 0o, 0b and 0 mean what they mean in Go, and the number has 32 bits.
    """
    if not text:
        return 0
    match = _INTEGER.fullmatch(text)
    if match is None or len(text) > 40:
        return None
    sign, digits = match[1], match[2].replace("_", "")
    is_old_octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    number = int(digits, 8) if is_old_octal else int(digits, 0)
    number = -number if sign == "-" else number
    return number if number in _INT32 else None


def rank_qos(qos: KoordinatorQos | None) -> int:
    """Return the place of a QoS in the order of eviction; pods of the lowest go first."""
    return _NO_QOS_ORDER if qos is None else _EVICTION_ORDER[qos]


def is_best_effort(shape: PodShape, limits: Mapping[str, int]) -> bool:
    """Whether a pod neither requests nor limits CPU or memory, so that its QoS is BestEffort."""
    overhead = dict(shape.overhead)
    requested = any(
        name in {CPU, MEMORY} and amount > overhead.get(name, 0) for name, amount in shape.requests
    )
    return not requested and not limits.get(CPU) and not limits.get(MEMORY)


def name_of_tier(koordinator_class: KoordinatorClass, resource: str) -> str:
    """Return the resource that pods of a class request instead of CPU or memory; "" for none."""
    if koordinator_class is KoordinatorClass.PROD:
        return resource
    tier = TIERS.get(koordinator_class)
    return (
        "" if tier is None or resource not in {CPU, MEMORY} else f"kubernetes.io/{tier}-{resource}"
    )


BATCH_CPU: Final = name_of_tier(KoordinatorClass.BATCH, CPU)
BATCH_MEMORY: Final = name_of_tier(KoordinatorClass.BATCH, MEMORY)
MID_CPU: Final = name_of_tier(KoordinatorClass.MID, CPU)
MID_MEMORY: Final = name_of_tier(KoordinatorClass.MID, MEMORY)


def is_tier_resource(name: str, koordinator_class: KoordinatorClass) -> bool:
    """Whether a resource is one of those that are left over for a class."""
    return name in {name_of_tier(koordinator_class, CPU), name_of_tier(koordinator_class, MEMORY)}
