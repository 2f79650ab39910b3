"""What was observed at one moment, from which another thread makes a state of its own.

Taking a snapshot only copies references to values that never change, so it costs the event loop
nearly nothing. What this process has assumed and nobody has observed yet is not in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from koord.core.engine.state import ClusterState
from koord.core.plugins.nominations import Nomination
from koord.isolation import Isolation
from koord.kube.kind import AnyKind
from koord.kube.reflector import Absence


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The values of all kinds; ``make_state`` returns an empty state with the same settings."""

    make_state: Callable[[], ClusterState]
    values: dict[AnyKind, tuple[Any, ...]]
    absences: Mapping[AnyKind, Absence]
    nominations: tuple[Nomination, ...]
    now: float

    def build(self) -> ClusterState:
        """Return the state; an object that cannot be applied counts as not there."""
        state, isolated = self.make_state(), Isolation("snapshots")
        state.advance(self.now)
        for kind, absence in self.absences.items():
            if kind.note_absence is not None:
                kind.note_absence(state, absence)
        for kind, values in reversed(self.values.items()):  # pods last
            for value in values:
                with isolated.of(kind.name):
                    kind.upsert(state, value)
                    continue
                isolated.call(kind.name, kind.remove, state, value)
        for nomination in self.nominations:
            state.nominations.begin(nomination)
        state.refresh()
        return state
