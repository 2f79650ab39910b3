"""What is said of pods for the load of their nodes."""

from dataclasses import dataclass
from typing import ClassVar

from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import PodReason


@dataclass(frozen=True, slots=True)
class PlacedOverLoad(PodReason):
    """The pod was placed on a node that uses more than its thresholds: so did all others."""

    code: ClassVar = "PlacedOverLoad"
    reason_class: ClassVar = ReasonClass.ORDER
    is_placed: ClassVar = True
    way_out: ClassVar = "add nodes, or raise `usageThresholds`"
    says: ClassVar = (
        "{pod} was placed on node {node}, of those that it fits the one that uses least: "
        "{excess:list}"
    )
    node: str
    excess: tuple[str, ...] = ()
