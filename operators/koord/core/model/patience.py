"""Patience: until when the room of a pod that leaves is counted on.

How long a pod takes to leave is up to its owner, and to its node: finalizers, the grace period, a
dead kubelet. So whoever waits for its room waits until a deadline. A pod that is still there then
*hangs*: its room counts as used by a pod that stays. Who has waited for one in vain waits for no
other: otherwise the owner of many pods, deleting one after the other, decides how long. Everything
is read from objects of the API, so the answer is the same after a restart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from koord.core.model.pods import Pod
from koord.core.model.text import named

_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long others wait for pods that leave; all times are in seconds.

    Nobody gets more than ``grace_limit`` after its deletion was requested, and after ``ask_limit``
    more to end by itself before. Beyond that ``stuck_after`` is for whoever has to clean up.
    """

    stuck_after: float = _NEVER
    grace_limit: float = _NEVER
    ask_limit: float = _NEVER

    @property
    def longest(self) -> float:
        """How long room is kept for a nominated unit at most.

        Its victims are asked, deleted in up to four turns, and its pods are bound.
        """
        return self.ask_limit + 4 * self.grace_limit + 5 * self.stuck_after

    def leaves_by(self, pod: Pod) -> float:
        """Return until when a leaving pod is waited for, in seconds since the epoch."""
        if pod.gone_by:
            since = pod.deleted or pod.gone_by
            return min(pod.gone_by, since + self.grace_limit) + self.stuck_after
        if pod.marked:
            return pod.marked + self.ask_limit + self.grace_limit + self.stuck_after
        return _NEVER

    def hangs(self, pod: Pod, now: float) -> bool:
        """Whether a pod should have left by ``now``, and has not."""
        return pod.is_terminating and now > self.leaves_by(pod)

    def was_waited_for(self, pod: Pod, since: float) -> bool:
        """Whether who has waited since then has waited for a pod that hangs."""
        return self.leaves_by(pod) - max(since, pod.deleted or pod.marked) >= self.stuck_after

    def is_doubtful(self, pod: Pod) -> bool:
        """Whether a pod may stay long after its deletion, or for ever: its owner decides that."""
        return bool(pod.finalizers) or pod.grace > self.grace_limit


FOREVER: Final = Patience()
"""Waits for everybody, however long that takes."""


@dataclass(frozen=True, slots=True)
class Hanging:
    """A pod that hangs, for people, and the finalizers that keep it."""

    name: str
    finalizers: tuple[str, ...] = ()

    def text(self) -> str:
        if not self.finalizers:
            return self.name
        more = f" and {len(self.finalizers) - 1} more" if len(self.finalizers) > 1 else ""
        return f"{self.name} (finalizer {self.finalizers[0]}{more})"

    def advice(self) -> str:
        return f"Look at the finalizers of {self.name}, and whether its node is alive."


def tell_hanging(pods: Sequence[Hanging]) -> str:
    """Say which pods hang, and that they keep their room."""
    are = "pod is" if len(pods) == 1 else "pods are"
    names = named([pod.text() for pod in pods])
    return (
        f"{len(pods)} {are} still there long after the end of the grace period, and keep the room: "
        f"{names}"
    )


def describe_hanging(pods: Iterable[Pod]) -> tuple[Hanging, ...]:
    """Return values that name pods, in the order of their names."""
    return tuple(Hanging(pod.title, pod.finalizers) for pod in sorted(pods, key=_title_of))


def _title_of(pod: Pod) -> str:
    return pod.title
