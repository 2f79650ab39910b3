"""Finds what would help something that waits: each remedy is planned on a copy before it is told.

A remedy is an edit of the cluster with the smallest amount that is enough: with one less it was
planned, too, and did not start. Only what was planned and started is said to start; what was tried
in vain, and what there was no time for, is told as such. Nothing is written.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.explanation import Explanation
from koord.answers.reading import KindName, Reading, Target
from koord.answers.remedies import Remedy, Verified
from koord.answers.remedy_edits import (
    add_members,
    add_nodes,
    ask_less,
    fix_name,
    lower_min_member,
    raise_quota,
    remove_hold,
    tolerate,
    uncordon,
    use_other_quota,
)
from koord.answers.remedy_room import defragment, preempt, relax, wait_for
from koord.answers.remedy_trial import ClosedNodes, RemedyFinder, RemedySearch
from koord.core.model.reasons import Reason

MOST_REMEDIES: Final = 12

_FINDERS: Final[tuple[RemedyFinder, ...]] = (
    fix_name,
    remove_hold,
    add_members,
    preempt,
    raise_quota,
    use_other_quota,
    uncordon,
    add_nodes,
    relax,
    ask_less,
    lower_min_member,
    tolerate,
    defragment,
    wait_for,
)
"""In the order in which remedies are told; what takes longest to try comes last."""


def find_remedies(
    reading: Reading,
    target: Target,
    refusal: tuple[Reason | None, ClosedNodes],
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[Remedy, ...]:
    """Return what would help a target that is refused, and what not; the reading is as before."""
    reason, closed = refusal
    if reason is None or reason.is_placed:
        return ()
    search = RemedySearch(reading, target, is_over)
    remedies: list[Remedy] = []
    try:
        for finder in _FINDERS:
            remedies += finder(search, reason, closed)
        remedies = [_try_in_order(search, remedy) for remedy in remedies]
    finally:
        search.trial.undo()
        reading.state.refresh()
    order = list(Verified)
    return tuple(sorted(remedies, key=lambda each: order.index(each.verified))[:MOST_REMEDIES])


def _try_in_order(search: RemedySearch, remedy: Remedy) -> Remedy:
    """Return a remedy with which it starts alone as one with which it starts in its turn, if so."""
    is_tried = remedy.verified is Verified.YES and remedy.edits and not search.is_over()
    if is_tried and search.starts_in_order_with(*remedy.edits):
        return replace(remedy, verified=Verified.YES_IN_ORDER)
    return remedy


def verify(
    reading: Reading, answer: Explanation, is_over: Callable[[], bool]
) -> tuple[Explanation, tuple[AnswerGap, ...]]:
    """Return the answer with remedies that were tried, and a gap if not all could be."""
    if any(reading.extent_of(kind) is not None for kind in (KindName.PODS, KindName.NODES)):
        unread = AnswerGap("remedies", GapCause.NO_RIGHT, "what would help, by trial")
        return replace(answer, remedies=()), (unread,)
    reason = next(iter(answer.reasons), None)
    remedies = find_remedies(reading, answer.target, (reason, answer.closed), is_over)
    late = AnswerGap("remedies", GapCause.TOO_EXPENSIVE, "whether more would help")
    is_late = is_over() or any(each.verified is Verified.NOT_TRIED for each in remedies)
    return replace(answer, remedies=remedies), (late,) if is_late else ()
