"""Keeps what the ConfigMap ``slo-controller-config`` says. It has no part in planning.

Which keys there are, and what they mean, is up to the domains: each looks up the value of its own
class. Nothing is read here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from koord.core.engine.plugin import Plugin

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SloConfig:
    """The ConfigMap; ``values`` are in force: of each key the last valid one, by its class.

    ``problems`` say by key what is wrong with the present text, field first; ``unknown`` what of a
    valid one nothing reads.
    """

    uid: str
    values: Mapping[type, object] = field(default_factory=dict)
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class SloConfigs(Plugin):
    """The one ConfigMap, if there is one and it may be read."""

    name: ClassVar = "slo-config"

    def __init__(self) -> None:
        self.config: SloConfig | None = None
        self.changes = 0
        """Grows with each change of the ConfigMap."""

    def of(self, kind: type[T]) -> T | None:
        """Return the settings of a class that are in force; None if there are none."""
        value = None if self.config is None else self.config.values.get(kind)
        return value if isinstance(value, kind) else None

    def has_problems(self, key: str) -> bool:
        """Whether the present text of a key is invalid; the last valid settings are in force."""
        return self.config is not None and key in self.config.problems

    def upsert(self, config: SloConfig) -> None:
        self.config = config
        self.changes += 1

    def remove(self, _config: SloConfig) -> None:
        self.config = None
        self.changes += 1
