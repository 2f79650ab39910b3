"""What a node itself says of its over-commitment, and what was published on it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from koord.core.colocation.strategy import Fields
from koord.core.model.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "colocation"
"""The plugin to which nodes say something."""
Pairs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Annotations and labels of a node, as values that can be hashed.

    ``annotated`` and ``labelled`` are fields of a strategy. ``third_party`` are amounts by resource
    that others use, ``faster`` the worth of its CPUs in percent. ``problems`` say what cannot be
    read, and is ignored.
    """

    annotated: Pairs = ()
    labelled: Pairs = ()
    reserved: tuple[tuple[str, int], ...] = ()
    third_party: tuple[tuple[str, int], ...] = ()
    has_third_party: bool = False
    faster: int = 100
    problems: tuple[str, ...] = ()
    allocatable: tuple[tuple[str, str], ...] = ()
    """Batch and mid resources in its allocatable, as they are written."""
    capacity: tuple[tuple[str, str], ...] = ()
    """The same of its capacity."""
    recorded: tuple[tuple[str, int], ...] = ()
    """What the operators have published last, as an annotation says."""
    withdrawn: tuple[str, ...] = ()
    """Which of these the node is not to offer any more: they are 0 until no pod uses them."""
    record: str | None = None
    """That annotation; None if there is none."""
    origin: str | None = None
    """The annotation that says what there would be without third parties; None without it."""
    has_annotations: bool = True

    @property
    def own_fields(self) -> tuple[tuple[str, Fields], ...]:
        """What the node sets of its strategy, by who sets it, the weakest first."""
        annotated: Mapping[str, Any] = dict(self.annotated)
        return ("annotation", annotated), ("labels", dict(self.labelled))


NO_FACTS: Final = NodeFacts()


def facts_of(node: Node) -> NodeFacts:
    for name, facts in node.extensions:
        if name == NAME and isinstance(facts, NodeFacts):
            return facts
    return NO_FACTS
