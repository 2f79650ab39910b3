"""What every policy of eviction hands to the controller that carries it out, and how it ends.

A policy decides who goes; nothing here does. Nothing here knows clocks or writes either.
"""

from dataclasses import dataclass
from enum import StrEnum

from koord.core.model.pods import Pod


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """Pods that go together or not at all.

    ``key`` names what it is for or who goes: a policy has one plan of a key at a time. Plans of one
    ``purpose`` wait for each other while pods may end by themselves. ``namespace`` is whoever
    caused it, if limits are to count there only; ``quota`` is the one that loses the pods.
    """

    policy: str
    key: str
    pods: tuple[Pod, ...]
    purpose: str = ""
    namespace: str = ""
    quota: str = ""


class Outcome(StrEnum):
    """How plans end."""

    BOUND = "Bound"
    NOT_NEEDED = "NotNeeded"
    """The preemptor fits without it, or nobody needs the room any more."""
    PREEMPTOR_GONE = "PreemptorGone"
    """The preemptor was deleted, or changed."""
    INVALID = "Invalid"
    """The preemptor would not fit any more, for example because a node went."""
    FAILED = "Failed"
    """The API server refused a write."""
    STUCK = "VictimStuck"
    """Victims did not go; another plan is tried."""
    UNMARKED = "VictimUnmarked"
    """A victim could not be marked; another plan is made at once."""
    EXPIRED = "Expired"
    """The preemptor was not bound although its victims had time enough to go."""
    ENDED = "Ended"
    """All its pods were evicted, or have ended by themselves."""
    PROTECTED = "Protected"
    """Disruption budgets, or the API server, do not allow it now."""
    LIMITED = "Limited"
    """As many went already as a limit allows."""
