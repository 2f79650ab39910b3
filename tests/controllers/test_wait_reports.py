"""What is reported about pending gangs and pods, and how often."""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import make_cluster
from tests.model.clock import virtual_time
from tests.objects import upsert_pod_group

from koord.answers.queue_view import QueuePlace
from koord.answers.standing import QueueStanding
from koord.controllers.commit import Commit
from koord.controllers.placement_reports import Attempts
from koord.controllers.wait_reports import (
    EVENT_SECONDS,
    GANG_NUMBERS_SECONDS,
    MOST_PER_SECOND,
    PLACE_SECONDS,
    POD_NUMBERS_SECONDS,
    QUIET_SECONDS,
    WaitReports,
)
from koord.core.engine.reasons import InsufficientNodes
from koord.core.gang.reasons import MissingMembers
from koord.core.model.gangs import GangKey, ObservedPodGroup
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Pod
from koord.core.model.reasons import BindFailed, Reason, TooLarge

G = "default/g"


def no_room(fit: int) -> InsufficientNodes:
    return InsufficientNodes(want=2, fit=fit, nodes=3, refused=(), first="default/g-0")


@dataclass
class Announcements:
    """All reports."""

    gangs: list[tuple[str, int]] = field(default_factory=list)
    retracted: list[GangKey] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    pods: list[tuple[str, str]] = field(default_factory=list)

    def announce_pod(self, pod: Pod, reason: Reason, *, is_placed: bool) -> None:
        self.pods.append((pod.name, str(is_placed or reason.code)))

    def announce_gang(
        self, pod_group: ObservedPodGroup, reason: Reason, attempts: Attempts
    ) -> None:
        assert pod_group.key == G
        self.gangs.append((str(reason.code), attempts.count))

    def retract_gang(self, pod_group: ObservedPodGroup) -> None:
        self.retracted.append(pod_group.key)

    def announce_event(self, pod_group: ObservedPodGroup, reason: Reason, note: str) -> None:
        assert pod_group.key == G
        if not note:
            self.events.append(str(reason.code))

    def announce_pod_event(self, pod: Pod, reason: Reason) -> None:
        self.events.append(f"{pod.name}: {reason.code}")


class Waiting:
    """A gang of two; ``reason`` is the planner's reason for it."""

    def __init__(self, *pods: Pod, **told: object) -> None:
        self.now = 0.0
        self.reason: Reason | None = None
        self.attempts = 0
        self.place: QueuePlace | None = None
        self.standing: QueueStanding | None = None
        self.in_doubt: set[str] = set()
        self.state = make_cluster().state
        self.state.upsert_node(make_node("n0").build())
        upsert_pod_group(self.state, make_pod_group(G, 2)._set(**told).build())
        for pod in pods or (make_pod("g-0").gang(G).build(), make_pod("g-1").gang(G).build()):
            self.state.upsert_pod(pod)
        self.said = Announcements()
        self.reports = WaitReports(self.state, self.said, lambda: self.now)

    def reason_for(self, _: Pod) -> Reason | None:
        return self.reason

    def held_up_by(self, pod: Pod) -> Reason | None:
        return self.reason if pod.uid in self.in_doubt else None

    def attempts_of(self, _: GangKey) -> Attempts:
        return Attempts(self.attempts, self.now, self.place, self.standing)

    def hear(self, reason: Reason | None, after: float = 5.0) -> None:
        """Change the planner's reason, and let time pass until it is reported."""
        self.reason = reason
        self.attempts += 1
        self.reports.note({G}, set())
        self.now += after
        self.reports.report(self, self.now)


def test_reason_is_reported_with_the_attempts_and_one_event() -> None:
    waiting = Waiting()
    waiting.hear(no_room(0))
    waiting.hear(no_room(0))
    assert waiting.said.gangs == [("InsufficientNodes", 1), ("InsufficientNodes", 1)]
    assert waiting.said.events.count("InsufficientNodes") == 1


def test_new_numbers_are_reported_after_a_pause() -> None:
    waiting = Waiting()
    waiting.hear(no_room(0))
    for fit in (1, 0, 1):
        waiting.hear(no_room(fit), after=1.0)
    assert {attempts for _, attempts in waiting.said.gangs} == {1}
    waiting.now += GANG_NUMBERS_SECONDS
    waiting.reports.report(waiting, waiting.now)
    assert waiting.said.gangs[-1] == ("InsufficientNodes", 4)
    assert waiting.said.events.count("InsufficientNodes") == 1


def test_numbers_changed_meanwhile_are_reported_when_due() -> None:
    waiting = Waiting()
    waiting.hear(no_room(0))
    waiting.reason = no_room(1)
    waiting.reports.note_numbers({G}, set())
    waiting.attempts += 1
    waiting.now += GANG_NUMBERS_SECONDS
    waiting.reports.report(waiting, waiting.now)
    assert waiting.said.gangs[-1] == ("InsufficientNodes", 2)
    assert len(waiting.said.pods) == 2, "of hundreds of pods they are said later"
    waiting.now += POD_NUMBERS_SECONDS
    waiting.reports.report(waiting, waiting.now)
    assert len(waiting.said.pods) == 4


def test_a_new_place_in_the_queue_is_reported_after_a_pause() -> None:
    waiting = Waiting()
    waiting.place = QueuePlace(3, 16)
    waiting.hear(no_room(0))
    waiting.place = QueuePlace(2, 8)
    waiting.hear(no_room(0), after=1.0)
    assert {attempts for _, attempts in waiting.said.gangs} == {1}
    waiting.now += PLACE_SECONDS
    waiting.reports.report(waiting, waiting.now)
    assert waiting.said.gangs[-1] == ("InsufficientNodes", 2)
    assert waiting.said.events.count("InsufficientNodes") == 1


def test_a_place_that_changes_unnoticed_is_looked_at_again() -> None:
    waiting = Waiting()
    waiting.place = QueuePlace(2, 8)
    waiting.hear(no_room(0))
    waiting.attempts, waiting.place = 7, QueuePlace(1, 0)
    for _ in range(2):
        waiting.now += PLACE_SECONDS
        waiting.reports.report(waiting, waiting.now)
    assert waiting.said.gangs[-1] == ("InsufficientNodes", 7)


def test_a_turn_that_is_found_after_the_report_is_told_at_once_and_a_new_one_after_a_pause() -> (
    None
):
    waiting = Waiting()
    waiting.hear(no_room(0))
    waiting.standing = QueueStanding("q", 2, 2, 1, 8, "WaitingForNodes")
    waiting.hear(no_room(0), after=2.0)
    assert waiting.said.gangs[-1] == ("InsufficientNodes", 2)
    waiting.standing = QueueStanding("q", 1, 1, 0, 0, "WaitingForNodes")
    waiting.hear(no_room(0), after=2.0)
    assert waiting.said.gangs[-1] == ("InsufficientNodes", 2)
    waiting.now += PLACE_SECONDS
    waiting.reports.report(waiting, waiting.now)
    assert waiting.said.gangs[-1] == ("InsufficientNodes", 3)


def test_report_due_much_later_does_not_delay_others() -> None:
    waiting = Waiting()
    waiting.hear(no_room(0))
    waiting.reports.note_numbers(set(), {"anybody"})
    with virtual_time() as loop:
        waiting.reports.clock = loop.time
        running = loop.create_task(waiting.reports.run(waiting))
        loop.run_until_complete(asyncio.sleep(1.0))
        waiting.reason = BindFailed("default/g-0", 403, "no")
        waiting.reports.note({G}, set())
        loop.run_until_complete(asyncio.sleep(2.0))
        running.cancel()
        loop.run_until_complete(asyncio.wait([running]))
    assert waiting.said.gangs[-1] == ("BindFailed", 1)


def test_pause_doubles_while_numbers_keep_changing() -> None:
    waiting = Waiting()
    waiting.hear(no_room(0))
    said_at = []
    for second in range(1, 200):
        before = len(waiting.said.gangs), waiting.said.gangs[-1]
        waiting.hear(no_room(second % 2), after=1.0)
        if waiting.said.gangs[-1] != before[1]:
            said_at.append(second)
    pauses = [after - before for before, after in pairwise(said_at)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= GANG_NUMBERS_SECONDS
    assert len(said_at) <= 5


def test_new_reason_is_reported_without_pause() -> None:
    waiting = Waiting()
    waiting.hear(no_room(0))
    waiting.hear(BindFailed("default/g-0", 403, "no"), after=1.0)
    assert waiting.said.gangs[-1] == ("BindFailed", 2)
    assert waiting.said.events == ["InsufficientNodes", "BindFailed"]


def test_reason_of_surplus_pods_is_not_reported_for_the_gang() -> None:
    bound = [make_pod(f"g-{i}").gang(G).released("n0", "p", G, 2).running("n0") for i in (0, 1)]
    surplus = make_pod("g-2").gang(G).build()
    waiting = Waiting(*(pod.build() for pod in bound), surplus)
    waiting.hear(no_room(0))
    assert waiting.said.pods == [("g-2", "InsufficientNodes")]
    assert not waiting.said.gangs
    assert not waiting.said.events


def test_report_is_retracted_once() -> None:
    waiting = Waiting()
    waiting.hear(no_room(0))
    waiting.hear(None)
    waiting.hear(None)
    assert waiting.said.retracted == [G]


def test_report_of_a_previous_process_is_retracted() -> None:
    waiting = Waiting(attempts=3, wait_reason="InsufficientNodes")
    waiting.hear(None)
    assert waiting.said.retracted == [G]


def test_restart_emits_no_event() -> None:
    waiting = Waiting(attempts=3, wait_reason="InsufficientNodes")
    waiting.hear(no_room(0))
    assert not waiting.said.events
    assert waiting.said.gangs == [("InsufficientNodes", 1)]


def test_reasons_of_the_podgroup_operator_are_not_reported() -> None:
    waiting = Waiting()
    waiting.hear(MissingMembers(()))
    assert not waiting.said.gangs
    assert waiting.said.pods == [("g-0", "MissingMembers"), ("g-1", "MissingMembers")]


def test_unknown_reason_is_checked_again() -> None:
    waiting = Waiting()
    waiting.hear(None)
    waiting.reason = no_room(0)
    waiting.now += 2.0
    waiting.reports.report(waiting, waiting.now)
    assert waiting.said.pods == [("g-0", "InsufficientNodes"), ("g-1", "InsufficientNodes")]


def test_report_made_during_binding_is_retracted() -> None:
    waiting = Waiting()
    waiting.hear(no_room(0))
    waiting.state.assume("uid-default-g-0", "n0")
    waiting.hear(no_room(0))
    bound = make_pod("g-0").gang(G).released("n0", "p", G, 2).running("n0").build()
    waiting.state.upsert_pod(bound)
    waiting.hear(no_room(0))
    assert waiting.said.pods[2:] == [("g-0", "True")]


def test_report_of_a_pod_taken_over_by_others_is_retracted() -> None:
    waiting = Waiting()
    waiting.hear(no_room(0))
    waiting.state.upsert_pod(make_pod("g-0").gang(G).not_ours().running("n0").build())
    waiting.hear(no_room(0))
    assert waiting.said.pods[2:] == [("g-0", "True")]


def test_report_is_retracted_when_the_pod_is_bound() -> None:
    """A pending report may not be written yet, and must not follow the binding."""
    waiting = Waiting()
    waiting.hear(no_room(0))
    unit = Unit(G, (Demand(G, tuple(waiting.state.pods.values()), 2),), G)
    waiting.reports.placed(unit, Commit(bound={"uid-default-g-0"}))
    assert waiting.said.pods[2:] == [("g-0", "True")]


def test_the_oldest_member_of_a_gang_without_pod_group_gets_its_event_at_once() -> None:
    pods = [make_pod(f"x-{i}").annotation_gang("default/x", 3).created(float(i)) for i in range(2)]
    waiting = Waiting(*(pod.build() for pod in reversed(pods)))
    waiting.reports.note({"default/x"}, set())
    for _ in range(3):
        waiting.reason, waiting.now = MissingMembers(()), waiting.now + 5
        waiting.reports.report(waiting, waiting.now)
        assert waiting.said.events == ["x-0: MissingMembers"]


def test_single_pod_gets_one_event_per_reason_and_one_when_placed() -> None:
    waiting = Waiting()
    pod = make_pod("p").build()
    waiting.state.upsert_pod(pod)
    for fit in (0, 1, 1):
        waiting.reason, waiting.now = no_room(fit), waiting.now + 20
        waiting.reports.note(set(), {pod.uid})
        waiting.now += 5
        waiting.reports.report(waiting, waiting.now)
    assert waiting.said.events == ["p: InsufficientNodes"]
    waiting.state.upsert_pod(make_pod("p").bound("n0").build())
    waiting.reports.note(set(), {pod.uid})
    waiting.now += 5
    waiting.reports.report(waiting, waiting.now)
    assert waiting.said.events == ["p: InsufficientNodes", "p: Planned"]


def test_change_before_due_numbers_still_waits_for_quiet() -> None:
    waiting = Waiting()
    pod = make_pod("p").build()
    waiting.state.upsert_pod(pod)
    waiting.reports.note_numbers({G}, {pod.uid})
    waiting.reason = no_room(0)
    waiting.now += 1.0
    waiting.reports.note({G}, {pod.uid})
    waiting.reports.report(waiting, waiting.now)
    assert not waiting.said.pods, "it may be placed at once"
    waiting.now += QUIET_SECONDS
    waiting.reports.report(waiting, waiting.now)
    assert [name for name, _ in waiting.said.pods] == ["g-0", "g-1", "p"]


def test_held_up_pods_report_the_failing_write() -> None:
    waiting = Waiting()
    waiting.in_doubt = set(waiting.state.pods)
    for uid in waiting.in_doubt:
        waiting.state.assume(uid, "n0")
    waiting.hear(BindFailed("default/g-1", 500, "failed calling webhook"))
    assert waiting.said.pods == [("g-0", "BindFailed"), ("g-1", "BindFailed")]
    assert waiting.said.gangs == [("BindFailed", 1)]
    assert waiting.said.events == ["BindFailed"]


def test_gang_with_its_minimum_is_not_held_up_by_surplus() -> None:
    more = make_pod("g-2").gang(G).build()
    bound = [make_pod(name).gang(G).bound("n0").build() for name in ("g-0", "g-1")]
    waiting = Waiting(*bound, more)
    waiting.in_doubt = {more.uid}
    waiting.state.assume(more.uid, "n0")
    waiting.hear(BindFailed("default/g-2", 500, "failed calling webhook"))
    assert waiting.said.pods == [("g-2", "BindFailed")]
    assert waiting.said.gangs == []


def make_members(count: int) -> list[Pod]:
    return [make_pod(f"g-{at:02}").gang(G).build() for at in range(count)]


def look(waiting: Waiting, seconds: float) -> None:
    waiting.now += seconds
    waiting.reports.report(waiting, waiting.now)


@pytest.mark.parametrize("count", [2, 12])
def test_there_is_one_event_per_reason_and_gang(count: int) -> None:
    waiting = Waiting(*make_members(count))
    waiting.hear(no_room(0))
    look(waiting, EVENT_SECONDS)
    look(waiting, EVENT_SECONDS)
    assert waiting.said.events == ["InsufficientNodes"]  # of the PodGroup
    waiting.hear(TooLarge("gang", G, "groups", 2, 1))
    look(waiting, EVENT_SECONDS)
    assert waiting.said.events == ["InsufficientNodes", "TooLarge"]


@pytest.mark.parametrize("count", [1, 12])
def test_a_gang_that_is_not_complete_gets_its_event_when_that_has_lasted(count: int) -> None:
    waiting = Waiting(*make_members(count))
    waiting.hear(MissingMembers(()))
    assert waiting.said.events == []
    look(waiting, EVENT_SECONDS)
    look(waiting, EVENT_SECONDS)
    assert waiting.said.events == ["MissingMembers"]  # of the PodGroup


def test_members_that_wait_beside_running_ones_get_one_event() -> None:
    bound = [make_pod(f"g-{at}").gang(G).bound("n0").build() for at in range(2)]
    waiting = Waiting(*bound, *(make_pod(f"g-{at}").gang(G).build() for at in (2, 3, 4)))
    waiting.hear(no_room(0))
    look(waiting, EVENT_SECONDS)
    look(waiting, EVENT_SECONDS)
    assert waiting.said.events == ["g-2: InsufficientNodes"]


def test_events_are_few_per_second() -> None:
    waiting = Waiting()
    for at in range(3 * MOST_PER_SECOND):
        gang = f"default/h{at}"
        upsert_pod_group(waiting.state, make_pod_group(gang, 2).build())
        waiting.state.upsert_pod(make_pod(f"h{at}-0").gang(gang).build())
        waiting.reports.note({gang}, set())
    waiting.said.announce_event = lambda *_: waiting.said.events.append("")  # type: ignore[method-assign]
    waiting.reason = MissingMembers(())
    look(waiting, 5)
    look(waiting, EVENT_SECONDS)
    assert len(waiting.said.events) == MOST_PER_SECOND


def test_no_late_event_while_pods_are_bound_nor_if_the_reason_is_over() -> None:
    waiting, busy = Waiting(*make_members(2)), [True]
    waiting.reports.events.is_busy = lambda: busy[0]
    waiting.hear(MissingMembers(()))
    for _ in range(5):
        look(waiting, EVENT_SECONDS)
    assert waiting.said.events == []
    waiting.reason, busy[0] = None, False
    look(waiting, EVENT_SECONDS)
    assert waiting.said.events == []
