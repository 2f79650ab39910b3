"""What autoscalers have to do with a wait, for people."""

from dataclasses import dataclass

from typing_extensions import override

from koord.core.engine.reasons import NewNodes
from koord.core.model.reasons import ASK, ReasonContext
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


@dataclass(frozen=True, slots=True)
class NodesMayCome(NewNodes):
    """An autoscaler can add nodes of a kind that takes such pods."""

    @property
    @override
    def may_hold(self) -> bool:
        return True

    @override
    def text(self) -> str:
        return "An autoscaler can add a node for it."

    @override
    def advice(self) -> tuple[str, ...]:
        return (
            "Wait until the autoscaler has added nodes.",
            f"If none comes, {ASK} look whether it may add more of autoscaler.nodeKinds.",
        )

    @property
    def about(self) -> str:
        return "nodes that may come"


@dataclass(frozen=True, slots=True)
class NoKindSuits(NewNodes):
    """Of the kinds of nodes that an autoscaler is known to add none takes such pods."""

    @property
    @override
    def may_hold(self) -> bool:
        return False

    @override
    def text(self) -> str:
        return "No kind of nodes is known that an autoscaler could add for it."

    @override
    def advice(self) -> tuple[str, ...]:
        return (
            "Request less per pod, or relax the rules that say which nodes it may use.",
            f"If an autoscaler can add such nodes, {ASK} name them in autoscaler.nodeKinds.",
        )
