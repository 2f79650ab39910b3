"""Resources that reservations do not limit: those that something else accounts for."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class IgnoredResources:
    """Resources by name, and by group: what is before the slash."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        if name in self.names:
            return True
        group, slash, _ = name.partition("/")
        return bool(slash and group) and group in self.groups


NOTHING_IGNORED: Final = IgnoredResources()
