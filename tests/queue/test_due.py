"""Who is tried again though nothing has changed for him."""

from __future__ import annotations

from tests.builders import make_pod
from tests.cluster import make_cluster

from koord.core.engine.queue import find_pending
from koord.core.model.plan import Placement, Plan, Unplaced
from koord.core.queue.blocked_heads import BlockedHeads
from koord.core.queue.due import MOST_IN_VAIN, PLAN_AGAIN_SECONDS, DueTurns
from koord.core.queue.reasons import WouldDelay
from koord.core.queue.settings import QueueSettings

NOW = 1_000_000_000
HEADS = BlockedHeads()


def make_due() -> tuple[DueTurns, Plan]:
    """Return turns, and a plan in which a unit is refused for reserved room."""
    cluster = make_cluster().pods(make_pod("a").gpu(8))
    cluster.state.advance(float(NOW))
    (unit,) = find_pending(cluster.state)
    refused = Unplaced(unit.key, unit.pods, WouldDelay("head"))
    return DueTurns(cluster.state, lambda _: QueueSettings()), Plan((), (refused,))


def count_tries(due: DueTurns, plan: Plan) -> int:
    """Have reserved room move in each plan; return how often in a row the unit is tried again."""
    for tries in range(10 * MOST_IN_VAIN):
        due.note_plan(plan, HEADS, has_changed=True)
        if not due.take(HEADS):
            return tries
    raise AssertionError("it never ends")


def test_room_that_moves_to_and_fro_does_not_keep_the_planner_busy() -> None:
    due, plan = make_due()
    assert count_tries(due, plan) == MOST_IN_VAIN
    assert due.next(HEADS) == NOW + PLAN_AGAIN_SECONDS


def test_after_a_start_others_are_tried_again_at_once() -> None:
    due, plan = make_due()
    count_tries(due, plan)
    started = Plan((Placement("b", "plan", "", ()),), plan.refusals)
    due.note_plan(started, HEADS, has_changed=True)
    assert due.take(HEADS) == {plan.refusals[0].unit}
