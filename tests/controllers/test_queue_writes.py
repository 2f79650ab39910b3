"""How often a turn is written: at most once per minute, however much the queue moves."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster
from tests.controllers.test_queue_looks import NOON, make_looks

from koord.controllers.placement_reports import Attempts
from koord.controllers.queue_looks import EVERY_SECONDS
from koord.controllers.wait_reports import PLACE_SECONDS, WaitReports
from koord.core.queue.plugin import QueueOptions
from koord.core.queue.run_time import QueueHints

if TYPE_CHECKING:
    from koord.core.model.gangs import ObservedPodGroup
    from koord.core.model.pods import Pod
    from koord.core.model.reasons import Reason

MINUTES = 8
GANGS = 6


class Played:
    """Small jobs come and go all the time, and gangs wait behind them."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(queue=QueueOptions({"protect_after": 0}))
        self.cluster.nodes(*(make_node(f"n{at}").gpu(8) for at in range(4)))
        self.now = NOON
        self.looks = make_looks(self.cluster)
        self.reports = WaitReports(self.cluster.state, self, lambda: self.now)  # type: ignore[arg-type]
        self.looks.on_told = lambda gangs: self.reports.note(gangs, set())
        self.written: defaultdict[str, list[tuple[float, object, str]]] = defaultdict(list)
        self.summed_up: list[tuple[float, object]] = []
        """When the status of a quota got something new of its queue to say."""

    # --- what reports ask ------------------------------------------------------------------------

    def reason_for(self, pod: Pod) -> Reason | None:
        return self.cluster.reasons().get(pod.name)

    def held_up_by(self, _: Pod) -> Reason | None:
        return None

    def attempts_of(self, gang: str) -> Attempts:
        return Attempts(1, NOON, None, self.looks.of(gang))

    # --- what is written -------------------------------------------------------------------------

    def announce_gang(self, group: ObservedPodGroup, reason: Reason, attempts: Attempts) -> None:
        standing = attempts.standing
        turn = None if standing is None else standing.worth_a_write
        self.written[group.key].append((self.now, turn, reason.text()))

    def __getattr__(self, name: str) -> object:
        if not name.startswith(("announce_", "retract_")):
            raise AttributeError(name)
        return lambda *_, **__: None

    # --- what happens ----------------------------------------------------------------------------

    def run(self) -> None:
        for gang in range(GANGS):
            group = make_pod_group(f"default/g{gang}", 4)
            self.cluster.pod_groups(replace(group.build(), uid=f"g{gang}"))
            for member in range(4):
                pod = make_pod(f"g{gang}-{member}").gang(f"default/g{gang}").gpu(8)
                says = (("queue", QueueHints(deadline=300)),)
                self.cluster.pods(pod.created(NOON + gang).says(says))
        for second in range(MINUTES * 60):
            self.now = NOON + second
            if second % 21 == 0:
                self.churn(second)
            self.cluster.state.advance(self.now)
            self.cluster.step(self.now)
            gangs = {f"default/g{gang}" for gang in range(GANGS)}
            self.reports.note_numbers(gangs, set())
            if second % 5 == 0:
                self.looks.look()
                if not self.summed_up or self.summed_up[-1][1] != self.looks.summaries:
                    self.summed_up.append((self.now, dict(self.looks.summaries)))
            self.reports.report(self, self.now)  # type: ignore[arg-type]

    def churn(self, second: int) -> None:
        """Have a job run on with another limit: when everybody starts, changes; and others come."""
        later = make_pod(f"later-{second}").gpu(8).says((("queue", QueueHints(is_held=True)),))
        self.cluster.pods(later.created(self.now))
        node = second // 21 % 4
        pod = make_pod(f"run-{node}").gpu(8).running(f"n{node}").build()
        says = (("queue", QueueHints(deadline=600 + 97 * second % 1800)),)
        self.cluster.pods(replace(pod, started=self.now, extensions=says))


@pytest.fixture(scope="module")
def played() -> Played:
    """A queue that has moved for some minutes."""
    played = Played()
    played.run()
    return played


def test_the_turn_of_a_unit_is_written_at_most_once_per_minute(played: Played) -> None:
    assert len(played.written) == GANGS
    moves = 0
    for writes in played.written.values():
        turns = [writes[0], *(now for before, now in pairwise(writes) if now[1] != before[1])]
        moves += len(turns)
        # The first turn is told as soon as it is known.
        times = [time for time, _, _ in turns][2:]
        assert all(later - time >= PLACE_SECONDS for time, later in pairwise(times)), times
    assert moves >= 3 * GANGS, "the queue has moved"


def test_the_status_of_a_quota_says_something_new_of_its_queue_once_per_minute(
    played: Played,
) -> None:
    times = [time for time, _ in played.summed_up]
    assert len(times) > 1
    assert all(later - time >= EVERY_SECONDS for time, later in pairwise(times)), times
