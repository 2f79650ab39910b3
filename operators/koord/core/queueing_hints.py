"""Whether what happened could give a pod a place that had none: what sleeps is not woken in vain.

It is enough to be right about pods that stay where they are: whether a woken unit really has a
place, the planner says. To miss a change, on the other hand, is to sleep for ever.
"""

import numpy as np

from koord.core.changes import Changes
from koord.core.constraints import PodSelector
from koord.core.framework.cycle import Cycle
from koord.core.plugins.affinity_terms import SelectorIndex
from koord.core.plugins.inter_pod import InterPodSession
from koord.core.pods import Pod, PodShape


class QueueingHints:
    """What some changes are to pods, on a cycle of the state after them."""

    def __init__(self, changes: Changes, cycle: Cycle) -> None:
        self._changes = changes
        self._cycle = cycle
        self._pods = cycle.session(InterPodSession).state
        row_of = cycle.table.row_of
        self._rows = np.array(
            [row_of[name] for name in changes.freed if name in row_of], dtype=np.int64
        )
        self._moved = changes.arrived | {profile for profile, _ in changes.left}
        self._lifted = SelectorIndex()
        for _, constraints in changes.left:
            for term in () if constraints is None else constraints.anti_affinity:
                self._lifted.add(term.pods)
        self._has_room: dict[tuple[PodShape, bool], bool] = {}
        self._touched: dict[PodSelector, bool] = {}

    def concerns(self, pod: Pod) -> bool:
        """Whether one more such pod may have a place now."""
        if pod.pinned and pod.recorded is not None:
            # It counts as used on its node already: what is free beside it says nothing.
            is_moved = pod.recorded.node in self._changes.freed
            return is_moved and self._cycle.can_keep(pod.shape, pod.recorded.node)
        if any(use.key in self._changes.claims for use in pod.claims):
            return True
        if self._is_company_changed(pod):
            return self._may_go(pod, anywhere=True)
        return bool(self._rows.size) and self._may_go(pod, anywhere=False)

    def _may_go(self, pod: Pod, *, anywhere: bool) -> bool:
        """Whether there is room for such a pod, anywhere or on nodes that were freed."""
        shape = self._cycle.shape_of(pod)
        known = self._has_room.get((shape, anywhere))
        if known is None:
            room = self._cycle.room(shape)
            known = bool((room if anywhere else room[self._rows]).any())
            self._has_room[shape, anywhere] = known
        return known

    def _is_company_changed(self, pod: Pod) -> bool:
        """Whether pods that it is to be near of, or away from, came or went, and so on."""
        constraints = pod.shape.constraints
        if constraints is not None:
            if self._changes.is_relabelled:
                return True
            if any(map(self._is_touched, constraints.selectors)):
                return True
        if not self._lifted:
            return False
        return next(self._pods.selecting(self._lifted, pod.profile), None) is not None

    def _is_touched(self, pods: PodSelector) -> bool:
        """Whether a selector means a pod that came or went."""
        known = self._touched.get(pods)
        if known is None:
            known = self._touched[pods] = any(self._pods.selects(pods, one) for one in self._moved)
        return known
