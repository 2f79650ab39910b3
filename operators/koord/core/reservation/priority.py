"""The priority of a reservation: that of the PriorityClass which its template names.

The API server resolves the class of a pod, and refuses a number that differs. Nobody checks
templates, so a number there may lower the priority in the queue, and has no other effect. Without
a class a reservation takes no part in preemption, on either side. Nor does one that pods use, as a
victim: its room was promised to them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from koord.core.model.pods import Pod
from koord.core.reservation.model import ReservationInfo

HIGHEST: Final = 2**31 - 1
"""Koordinator's priority of reservations without one: nothing preempts what has it."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass; pods of one that ``never_preempts`` wait for room."""

    name: str
    value: int
    never_preempts: bool = False


Classes = Mapping[str, PriorityClass]


def rank_waiting(pod: Pod, reservation: ReservationInfo, classes: Classes) -> Pod:
    """Return the pod that is planned for a reservation, with its priority.

    What is laid over running pods waits for them to end.
    """
    priority_class = classes.get(reservation.priority_class)
    if priority_class is None:
        return replace(pod, priority=min(pod.priority, 0), never_preempts=True)
    waits = priority_class.never_preempts or reservation.pre_allocation is not None
    return replace(pod, priority=priority_class.value, never_preempts=pod.never_preempts or waits)


def rank_held(reservation: ReservationInfo, classes: Classes, users: int) -> int:
    """Return the priority of what a reservation holds that this many pods use."""
    priority_class = classes.get(reservation.priority_class)
    return HIGHEST if priority_class is None or users else priority_class.value


def describe_ignored(reservation: ReservationInfo, classes: Classes) -> str:
    """Return what the template says of its priority without effect; empty for nothing."""
    name, pod = reservation.priority_class, reservation.pod
    priority_class = classes.get(name)
    if priority_class is None and name:
        return (
            f"spec.template.spec.priorityClassName: there is no PriorityClass {name}, so it "
            "takes no part in preemption"
        )
    if pod is None or pod.priority in {0, None if priority_class is None else priority_class.value}:
        return ""
    return (
        f"its priority {pod.priority} is ignored, because nobody has checked it: that of the "
        "PriorityClass in spec.template.spec.priorityClassName counts"
    )
