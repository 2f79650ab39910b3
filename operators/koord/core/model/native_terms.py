"""What a native PodGroup of Kubernetes says beyond what any gang does.

Source of the rules: ``scheduling.k8s.io``; ``docs/native-groups.md`` says what becomes of each.
"""

from typing import NamedTuple


class NativeTerms(NamedTuple):
    """The terms of one native PodGroup."""

    is_gang: bool
    """Whether its pods start together; if not, it only has settings in common for them."""
    is_disrupted_whole: bool = False
    """Whether no member may be evicted without all others."""
    priority: int | None = None
    """What all of its pods must have; None: nothing is said."""
    never_preempts: bool = False
    claims: tuple[str, ...] = ()
    """Resource claims that are given to the group as a whole."""
