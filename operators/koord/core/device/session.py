"""Devices in one planning cycle: which nodes have them free, and which ones a pod gets."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from typing_extensions import override

from koord.core.device.causes import INSUFFICIENT, Lacking
from koord.core.device.explain import explain_devices
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import (
    Share,
)
from koord.core.device.reasons import InvalidDeviceAnnotation, InvalidDeviceRequest, IsolationAbsent
from koord.core.device.request import NO_WISHES, InvalidRequest, Wishes
from koord.core.device.states import NO_DEVICES, Asked, Move, StateId
from koord.core.device_names import (
    GPU,
)
from koord.core.framework.arrays import NO_LIMIT, Ints, Rows
from koord.core.framework.cause import Cause
from koord.core.framework.cycle import Cycle
from koord.core.framework.plugin import Draft, Reach, Score, Session, Short
from koord.core.pods import Allocation, Pod, PodShape
from koord.core.reasons import Reason
from koord.core.zone_hints import Hints

if TYPE_CHECKING:
    from koord.core.device.plugin import Devices

NAME: Final = "device"
_FIRST: Final = np.zeros(1, dtype=np.int64)


class DeviceSession(Session):
    """Devices in one cycle; the states of all nodes are copied before the first change."""

    name = NAME
    reach = Reach.ROW

    def __init__(self, plugin: "Devices", cycle: Cycle) -> None:
        self._plugin = plugin
        self._states = plugin.states
        self._cycle = cycle
        self._state_of = plugin.state_of
        self._is_copy = False
        self._given: dict[str, tuple[Share, ...]] = {}
        """Pod uid -> what this cycle has given it; () if it was taken back."""
        self._before: dict[str, StateId] = {}
        """Uid of a pod that was taken from its row -> the state of the row with it."""

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        asked = self._plugin.request_of(pod)
        return None if isinstance(asked, InvalidRequest) else asked

    @override
    def obstacles(self, pods: Sequence[Pod]) -> Mapping[str, Reason]:
        found: dict[str, Reason] = {}
        waits = self._plugin.options.waits_for_isolation
        for pod in pods:
            asked, said = self._plugin.request_of(pod), wishes_of(pod)
            if asked is not None and said.problems:
                found[pod.uid] = InvalidDeviceAnnotation(pod.key, said.problems)
            elif isinstance(asked, InvalidRequest):
                found[pod.uid] = InvalidDeviceRequest(pod.key, asked)
            elif asked is not None and waits and asked.request.lacks_isolation:
                found[pod.uid] = IsolationAbsent(pod.key)
        return found

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        asked = shape.asked(NAME)
        if not isinstance(asked, Asked):
            return
        states, at = self._distinct(rows)
        fits = [self._states.fit(state, asked) for state in states]
        counts = np.array(
            [
                NO_LIMIT if state == NO_DEVICES else one.count
                for state, one in zip(states, fits, strict=True)
            ],
            dtype=np.int64,
        )
        causes = [one.lacking.cause for one in fits]
        for cause in dict.fromkeys(causes):
            mine = np.array([one is cause for one in causes])
            limits = np.where(mine, counts, NO_LIMIT)[at]
            if (limits < NO_LIMIT).any():
                yield cause, limits

    @override
    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        asked = shape.asked(NAME)
        if not isinstance(asked, Asked):
            return ""
        lacking = self._states.fit(int(self._state_of[row]), asked).lacking
        return (lacking.detail or GPU) if lacking.cause is cause else ""

    @override
    def explain(self, cause: Cause, shape: PodShape, row: int) -> str:
        asked, state = shape.asked(NAME), int(self._state_of[row])
        if not isinstance(asked, Asked) or state == NO_DEVICES:
            return ""
        if self._states.fit(state, asked).lacking.cause is not cause:
            return ""
        return explain_devices(self._states.ledger(state), asked.request)

    @override
    def score(self, shape: PodShape, rows: Ints) -> Iterable[Score]:
        asked = shape.asked(NAME)
        if not isinstance(asked, Asked):
            return
        states, at = self._distinct(rows)
        points = [self._states.points(state, asked) for state in states]
        yield Score(np.array(points, dtype=np.int64)[at])

    @override
    def signature(self, shape: PodShape, rows: Ints) -> Ints:
        return self._state_of[rows]

    @override
    def hints(self, shape: PodShape, row: int) -> Mapping[str, Hints]:
        asked, state = shape.asked(NAME), int(self._state_of[row])
        if not isinstance(asked, Asked) or state == NO_DEVICES:
            return {}
        return self._states.hints(state, asked)

    @override
    def reserve(self, draft: Draft) -> Allocation | Short | None:
        asked = draft.shape.asked(NAME)
        state = int(self._state_of[draft.row])
        if not isinstance(asked, Asked) or state == NO_DEVICES:
            return None
        move = self._states.move(state, asked, draft.zones)
        if not isinstance(move, Move):
            return Short(move)
        self._set(draft.row, move.after)
        self._note(draft.pod.uid, move.shares)
        return self._plugin.record(draft.pod, draft.row, move.shares)

    @override
    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> Short | None:
        shares = self._plugin.numbered(self._cycle.table.node_at(row).name, allocations)
        state = int(self._state_of[row])
        if not shares or state == NO_DEVICES:
            return None
        after = self._states.after(state, shares, 1)
        # What was there before may exceed what devices have: they may have become fewer.
        if after != self._before.get(pod.uid):
            short = _find_overused(self._states.ledger(state), shares)
            if short is not None:
                return short
        self._set(row, after)
        self._note(pod.uid, shares)
        return None

    @override
    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:
        shares = self._given.get(pod.uid, self._plugin.shares_of.get(pod.uid, ()))
        state = int(self._state_of[row])
        if not shares or state == NO_DEVICES:
            return ()
        self._set(row, self._states.after(state, shares, -1))
        self._note(pod.uid, ())
        self._before[pod.uid] = state
        return (self._plugin.record(pod, row, shares),)

    def _distinct(self, rows: Rows) -> tuple[list[StateId], Ints]:
        """Return the states that rows are in, and for each row the position of its state."""
        states = self._state_of[rows]
        if states.size == 1:
            return states.tolist(), _FIRST
        found, at = np.unique(states, return_inverse=True)
        return found.tolist(), at

    def _set(self, row: int, state: StateId) -> None:
        if not self._is_copy:
            self._state_of, self._is_copy = self._state_of.copy(), True
        self._cycle.undo.push(self._write, row, int(self._state_of[row]))
        self._write(row, state)

    def _write(self, row: int, state: StateId) -> None:
        self._state_of[row] = state

    def _note(self, uid: str, shares: tuple[Share, ...]) -> None:
        self._cycle.undo.push(self._restore, uid, self._given.get(uid))
        self._given[uid] = shares

    def _restore(self, uid: str, shares: tuple[Share, ...] | None) -> None:
        if shares is None:
            del self._given[uid]
        else:
            self._given[uid] = shares


def wishes_of(pod: Pod) -> Wishes:
    """Return what the annotations of a pod say about devices."""
    said = next((said for name, said in pod.said if name == NAME), NO_WISHES)
    return said if isinstance(said, Wishes) else NO_WISHES


def _find_overused(ledger: DeviceLedger, shares: Sequence[Share]) -> Short | None:
    """Return why exactly these shares cannot be given; those it already had are not checked."""
    for share in shares:
        free = ledger.free.get((share.kind, share.minor), {})
        use = ledger.use_of(share.kind, share.minor)
        if any(free.get(key, 0) < amount for key, amount in share.part) or (
            not use.functions.isdisjoint(share.functions)
        ):
            return Short(Lacking(INSUFFICIENT, share.kind, share.minor))
    return None
