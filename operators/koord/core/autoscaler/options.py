"""How cluster autoscalers are told that pods lack nodes: values; who uses them is not known."""

from dataclasses import dataclass
from enum import StrEnum

from koord.core.model.nodes import Node


class Signal(StrEnum):
    """What autoscalers see."""

    NONE = "none"
    """Nothing: they do not look at pods with a gate."""
    MARK = "mark"
    """Members that lack nodes: their condition ``PodScheduled`` says ``Unschedulable``."""
    PROVISIONING_REQUEST = "provisioningRequest"
    """A ProvisioningRequest for each gang that lacks nodes."""
    PLACEHOLDER = "placeholder"
    """A pod without gate for each member that lacks a node, which no scheduler binds."""


@dataclass(frozen=True, slots=True)
class AutoscalerOptions:
    """The settings.

    A gang has lacked nodes for ``delay`` seconds before it is told; so many pods at most are told
    of. With ``marks_topology`` also gangs are, for which there is enough room that is too spread.
    """

    signal: Signal = Signal.NONE
    delay: float = 30.0
    max_pods: int = 500
    marks_topology: bool = False
    kinds: tuple[Node, ...] = ()
    """Nodes such as could come although there is none."""

    @property
    def is_on(self) -> bool:
        return self.signal is not Signal.NONE
