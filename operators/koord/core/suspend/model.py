"""A Job that waits suspended, and the record of the room that is held for its pods.

Pure values. Knows neither the API nor the planner.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from koord.core.model.pods import Handling, Pod
from koord.core.model.vain_starts import VainStarts

HOLD_SECONDS: Final = 60.0
"""How long room is held for the pods of a Job that was resumed."""
MOST_PODS: Final = 10_000
"""Of one Job: more are never planned from a template."""
OURS: Final = frozenset({Handling.RELEASE_AND_BIND, Handling.RELEASE_PINNED, Handling.BIND})


@dataclass(frozen=True, slots=True)
class MemberSet:
    """Pods of a Job with one template; the pods that it stands for are ``count`` copies."""

    template: Pod
    count: int
    priority_class: str = ""


@dataclass(frozen=True, slots=True)
class HeldRoom:
    """Where room is held for the pods of a Job that was resumed ``at`` a time.

    ``places`` are the set of members, node, and number of pods; ``ended`` is how many pods of the
    Job had ended by then.
    """

    at: float
    places: tuple[tuple[int, str, int], ...]
    ended: int = 0

    @property
    def until(self) -> float:
        return self.at + HOLD_SECONDS

    @property
    def count(self) -> int:
        """For how many pods."""
        return sum(count for _, _, count in self.places)

    def is_open(self, now: float) -> bool:
        """Whether it is held now; a clock that is slow by less than its time does not matter."""
        return self.at - HOLD_SECONDS <= now < self.until


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A Job, or another owner of pods with a field that suspends it, as far as it matters here.

    ``kind`` is how users write it (``job``); ``path`` and ``field`` are where it is resumed.
    ``mode`` is what its owner asks for: ``suspend``, anything else, or empty for what its
    namespace says. ``recorded`` are the annotations that the operators write as they are: key and
    text. ``held`` is what they say, if the operators wrote it. ``problem`` says why it cannot be
    resumed by the operators; empty if it can.
    """

    uid: str
    namespace: str
    name: str
    kind: str = "job"
    path: str = ""
    field: str = "/spec/suspend"
    sets: tuple[MemberSet, ...] = ()
    is_suspended: bool = False
    is_over: bool = False
    """Complete, failed, being deleted, or started by somebody else."""
    mode: str = ""
    is_kept: bool = False
    """Its owner keeps it from starting."""
    generation: int = 0
    created: float = 0.0
    ended: int = 0
    """How many pods of it have ended."""
    ends_at: int | None = None
    """When Kubernetes ends it, in seconds since the epoch; None: never, or it has not begun."""
    recorded: tuple[tuple[str, str], ...] = ()
    held: HeldRoom | None = None
    failures: VainStarts | None = None
    problem: str = ""

    @property
    def title(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def key(self) -> str:
        """``namespace/job/name``: what its stand-ins are a gang of."""
        return f"{self.namespace}/{self.title}"

    @property
    def size(self) -> int:
        return sum(member_set.count for member_set in self.sets)

    @property
    def quota(self) -> str:
        """The quota that its pods name."""
        return self.sets[0].template.quota if self.sets else ""

    @property
    def gang(self) -> str:
        """The gang that its pods name; empty for none."""
        gang = self.sets[0].template.gang if self.sets else None
        return "" if gang is None else gang.key

    @property
    def not_before(self) -> float:
        """When it may be tried: room that was held for it lately, and in vain, makes it wait."""
        held = 0.0 if self.held is None else self.held.until
        failed = 0.0 if self.failures is None else self.failures.until(self.uid)
        return max(held, failed)


def find_problem(sets: Iterable[MemberSet]) -> str:
    """Return why pods made from these templates could not be placed by the operators."""
    size = 0
    for member_set in sets:
        size += member_set.count
        if member_set.template.handling not in OURS:
            return "its template has neither the gate nor the scheduler name of the operators alone"
    if size > MOST_PODS:
        return f"it has {size} pods, and at most {MOST_PODS} are planned from a template"
    return "" if size else "it makes no pods"


def places_left(held: HeldRoom, landed: Iterable[str], count: int) -> list[tuple[int, str]]:
    """Return set and node of the room that is still held: for ``count`` pods at most.

    ``landed`` are the nodes of pods that have come, which took their room first where they are.
    """
    gone = Counter(landed)
    left: list[tuple[int, str]] = []
    for number, node, places in held.places:
        taken = min(gone[node], places)
        gone[node] -= taken
        left += [(number, node)] * (places - taken)
    return left[: max(count, 0)]
