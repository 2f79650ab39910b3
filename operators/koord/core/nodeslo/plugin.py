"""Keeps the NodeSLOs of a cluster, as they are. They have no part in planning."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from koord.core.engine.plugin import Plugin


@dataclass(frozen=True, slots=True)
class ObservedSlo:
    """The NodeSLO of the node of its name. ``spec`` is shared by equal ones."""

    name: str
    uid: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SloOptions:
    """Whether NodeSLOs are rendered."""

    is_on: bool = False


class NodeSlos(Plugin):
    """All NodeSLOs, by the name of the node."""

    name: ClassVar = "nodeslo"

    def __init__(self) -> None:
        self.objects: dict[str, ObservedSlo] = {}

    def upsert(self, observed: ObservedSlo) -> None:
        self.objects[observed.name] = observed

    def remove(self, observed: ObservedSlo) -> None:
        self.objects.pop(observed.name, None)
