"""Policies that move pods, as they are in force, and who keeps them. They have no part in planning.

What the settings of a kind say is not known here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from koord.core.engine.plugin import Plugin

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class ObservedPolicy(Generic[S]):
    """A policy; ``settings`` are in force: the last valid ones, None if there are none."""

    name: str
    uid: str
    generation: int = 0
    created: float = 0.0
    settings: S | None = None
    kept: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The spec that ``settings`` were read from."""


class Policies(Plugin, Generic[S]):
    """All policies of a kind, by name."""

    def __init__(self) -> None:
        self.policies: dict[str, ObservedPolicy[S]] = {}

    def upsert(self, policy: ObservedPolicy[S]) -> None:
        self.policies[policy.name] = policy

    def remove(self, policy: ObservedPolicy[S]) -> None:
        self.policies.pop(policy.name, None)
