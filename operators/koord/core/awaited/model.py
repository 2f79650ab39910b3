"""Room that is held for pods that come later, and its record on the pod that started with it.

Pure values. Knows neither the API nor the planner.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from koord.core.model.gangs import DEFAULT_HOLD_SECONDS, GangKey
from koord.core.model.pods import Allocation, AnnotationWrite, Pod
from koord.core.suspend.writes import read_held

MOST_SECONDS: Final = DEFAULT_HOLD_SECONDS
"""How long room is held at most, whatever its owner asks for."""
RECORD: Final = "operators.koordinator.sh/later-room"
"""Pod annotation (result), JSON: since when and where room is held for pods that come after it."""
Places = tuple[tuple[int, str, int], ...]
"""Number of the role, node, and how many pods."""


@dataclass(frozen=True, slots=True)
class RoomRecord(Allocation):
    """From when on, for how long and where room is held: what the first pod was started with.

    While a cycle plans, ``places`` are not known: all of the unit must have nodes before.
    """

    uid: str
    at: float
    seconds: float
    places: Places = ()

    def __hash__(self) -> int:
        return hash(self.uid)

    def note_places(self, places: Places) -> None:
        """Say once where the others of the unit are that a cycle has planned."""
        object.__setattr__(self, "places", places)

    @property
    def until(self) -> float:
        return self.at + self.seconds

    @property
    def count(self) -> int:
        return sum(count for _, _, count in self.places)

    def is_open(self, now: float) -> bool:
        """Whether it is held now; a clock that is slow by less than its time does not matter."""
        return self.at - self.seconds <= now < self.until

    @override
    def writes(self) -> Iterable[AnnotationWrite]:
        roles = max((role for role, _, _ in self.places), default=-1) + 1
        nodes: list[dict[str, int]] = [{} for _ in range(roles)]
        for role, node, count in self.places:
            nodes[role][node] = count
        value = {"at": int(self.at), "seconds": int(self.seconds), "nodes": nodes}
        text = json.dumps(value, separators=(",", ":"))
        yield AnnotationWrite(self.uid, RECORD, text, is_record=True)


def read_record(uid: str, text: str) -> RoomRecord:
    """Return what the operators wrote. Raises ValueError."""
    value = json.loads(text)
    held = read_held(value)
    seconds = value.get("seconds") if isinstance(value, dict) else None
    if held is None or not isinstance(seconds, int):
        raise ValueError("it records no room")
    return RoomRecord(uid, held.at, float(min(max(seconds, 0), MOST_SECONDS)), held.places)


def find_record(pods: Iterable[Pod]) -> RoomRecord | None:
    """Return the record that one of these pods has."""
    allocations = (allocation for pod in pods for allocation in pod.allocations)
    return next((given for given in allocations if isinstance(given, RoomRecord)), None)


def count_places(stand_ins: Iterable[tuple[int, str]]) -> Places:
    """Return places, in order, from the role and node of each stand-in."""
    counts = sorted(Counter(stand_ins).items())
    return tuple((role, node, count) for (role, node), count in counts)


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """A gang that waits with room for others, as the lines see it."""

    uid: GangKey
    namespace: str
    name: str
    created: float
    size: int
    quota: str
    gang: str = ""
