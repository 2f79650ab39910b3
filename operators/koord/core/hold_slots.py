"""Slots: room for one pod each, of which holds are made. Where they are charged, holds decide."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from koord.core.gang.cache import order_of
from koord.core.gang_model import GangKey
from koord.core.pods import Pod, PodPhase
from koord.core.state import ClusterState


@dataclass(slots=True)
class Slot:
    """Room for a pod like ``pod``, preferably on ``node``; empty for any node."""

    pod: Pod
    node: str = ""
    row: int | None = None
    """Where it is charged in the current cycle; None: not charged."""


def make_slots(
    gang: GangKey, state: ClusterState, departed: Sequence[Pod], size: int
) -> list[Slot]:
    """Return slots for the planned nodes of waiting members, then for the nodes lost last.

    The rest has the shape of a running member and no node.
    """
    members = state.gangs.members(gang).values()
    planned = [
        Slot(pod, pod.recorded.node)
        for pod in sorted(members, key=order_of)
        if pod.is_waiting and pod.recorded is not None
    ]
    failed = [pod for pod in members if pod.phase is PodPhase.FAILED and pod.node]
    lost = [*reversed(departed), *sorted(failed, key=order_of, reverse=True)]
    slots = [*planned, *(Slot(pod, pod.node) for pod in lost)][:size]
    running = min((pod for pod in members if pod.is_alive and pod.node), key=order_of, default=None)
    if running is not None:
        # It pays for its own room; a pod like it has to pay as well.
        like = replace(running, uid="", sub_group="")
        slots += [Slot(like) for _ in range(size - len(slots))]
    return slots
