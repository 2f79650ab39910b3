"""What autoscalers have to do with a wait, for people."""

from dataclasses import dataclass

from typing_extensions import override

from koord.core.model.reasons import ReasonContext
from koord.core.model.text import named


@dataclass(frozen=True, slots=True)
class NodesComing(ReasonContext):
    """Nodes have come that will take such pods, and cannot be used yet."""

    nodes: tuple[str, ...]

    @override
    def text(self) -> str:
        are = "A new node is" if len(self.nodes) == 1 else f"{len(self.nodes)} new nodes are"
        return f"{are} starting ({named(self.nodes)})."

    @override
    def advice(self) -> tuple[str, ...]:
        is_one = len(self.nodes) == 1
        return (f"Wait until {named(self.nodes)} {'is' if is_one else 'are'} ready.",)

    @property
    def about(self) -> str:
        return "nodes that are starting"
