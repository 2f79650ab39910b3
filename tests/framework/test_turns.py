"""Whose turn it is (UnitOrder), and who has to wait whatever room there is (admission)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cluster import make_cluster, make_unit
from tests.support.laws import examples

from koord.core.engine.plugin import Admitting, Plugin, QueueingHint
from koord.core.model.reasons import Reason, WakesOn
from koord.core.queue.plugin import QueueOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from koord.core.engine.cycle import Cycle
    from koord.core.model.plan import Unit

NOON = 1_700_000_000.0


class RoundRobin(Plugin):
    """Users take turns, by the label ``user``."""

    name = "round-robin"

    def order(self, units: Sequence[Unit]) -> Iterable[Unit]:
        queues: dict[str, list[Unit]] = {}
        for unit in units:
            queues.setdefault(unit.pods[0].profile.labels.get("user", ""), []).append(unit)
        turns = chain.from_iterable(zip_longest(*queues.values()))
        return (unit for unit in turns if unit is not None)


@dataclass(frozen=True, slots=True)
class TooEarly(Reason):
    """It may not start yet."""

    code: ClassVar = "TooEarly"
    says: ClassVar = "it may not start before {at}"
    at: int

    @property
    def wakes_on(self) -> WakesOn:
        return WakesOn.DOMAIN

    @property
    def domain(self) -> str:
        return Curfew.name


@dataclass
class Curfew(Plugin):
    """Pods with the label ``not-before`` wait until then; ``asked``: about which units."""

    name = "curfew"
    starts: set[int] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def next_due(self) -> float | None:
        return min((at for at in self.starts if at > self.view.now), default=None)

    def queueing_hint(self, pending: Callable[[], Iterable[Unit]]) -> QueueingHint:
        now = self.view.now
        return QueueingHint(
            (), now, lambda _, reason: isinstance(reason, TooEarly) and reason.at <= now
        )

    def open(self, cycle: Cycle) -> CurfewSession:
        return CurfewSession(self, cycle.now)


class CurfewSession(Admitting):
    name = "curfew"

    def __init__(self, plugin: Curfew, now: float) -> None:
        self._plugin, self._now = plugin, now

    def admit(self, unit: Unit) -> Reason | None:
        self._plugin.asked.append(unit.key)
        at = int(unit.pods[0].profile.labels.get("not-before", "0"))
        self._plugin.starts.add(at)
        return TooEarly(at) if at > self._now else None


@pytest.mark.parametrize("values", [{}, {"max_running": 99}])
def test_users_take_turns_and_places_in_the_queue_say_so(values: dict[str, int]) -> None:
    """Also where settings of queues would give others the first turn."""
    options = QueueOptions(values)
    cluster = make_cluster(1, gpus=3, more_plugins=[RoundRobin()], queue=options)
    for at in range(4):
        cluster.pods(make_pod(f"a{at}").labels(user="a").gpu(1).created(at))
    cluster.pods(make_pod("b0").labels(user="b").gpu(1).created(9))
    assert [unit.pods[0].name for unit in cluster.absorb().pending()] == [
        "a0",
        "b0",
        "a1",
        "a2",
        "a3",
    ]
    assert sorted(cluster.step()) == ["a0", "a1", "b0"]


def test_repair_of_a_started_gang_comes_before_every_turn() -> None:
    class Last(RoundRobin):
        def order(self, units: Sequence[Unit]) -> Iterable[Unit]:
            assert not any(unit.is_repair for unit in units)
            return reversed(units)

    cluster = make_cluster(more_plugins=[Last()])
    cluster.pods(make_pod("old").created(1), make_pod("new").created(2))
    queue = cluster.absorb()
    queue.put_back([replace(make_unit("repair", [make_pod("lost").created(99)]), is_repair=True)])
    assert [unit.pods[0].name for unit in queue.pending()] == ["lost", "new", "old"]
    assert [unit.pods[0].name for unit in queue.take(0.0, 100)] == ["lost", "new", "old"]


def test_only_one_plugin_may_order() -> None:
    with pytest.raises(ValueError, match="only one plugin may order units"):
        make_cluster(more_plugins=[RoundRobin(), RoundRobin()])


@pytest.mark.isolates
@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 6), st.lists(st.integers(-1, 8), max_size=12))
def test_no_order_of_a_plugin_loses_or_doubles_a_unit(count: int, order: list[int]) -> None:
    class Careless(Plugin):
        name = "careless"

        def order(self, units: Sequence[Unit]) -> Iterable[Unit]:
            for at in order:
                if at < 0:
                    raise RuntimeError
                yield units[at] if at < len(units) else make_unit("x", [make_pod("x")])

    cluster = make_cluster(more_plugins=[Careless()])
    cluster.pods(*(make_pod(f"p{at}").created(at) for at in range(count)))
    queue = cluster.absorb()
    names = sorted(unit.pods[0].name for unit in queue.pending())
    assert names == [f"p{at}" for at in range(count)]
    assert len(queue.take(0.0, 100)) == count


def test_unit_that_is_not_admitted_waits_for_its_reason_and_not_for_room() -> None:
    curfew = Curfew()
    cluster = make_cluster(1, more_plugins=[curfew])
    cluster.state.advance(NOON)
    cluster.pods(make_pod("late").labels(**{"not-before": str(int(NOON) + 60)}), make_pod("now"))
    assert cluster.step() == ["now"]
    assert cluster.reasons() == {"late": TooEarly(int(NOON) + 60)}
    asked = len(curfew.asked)
    cluster.delete_pods("now")
    assert cluster.step() == []
    assert len(curfew.asked) == asked, "room that becomes free does not wake it"
    due = cluster.state.next_due()
    assert due == NOON + 60
    cluster.state.advance(due)
    assert cluster.step() == ["late"]


def test_nothing_is_charged_for_a_unit_that_is_not_admitted() -> None:
    cluster = make_cluster(1, more_plugins=[Curfew()])
    cluster.state.advance(NOON)
    cycle = cluster.open_cycle()
    before = cycle.version
    late = make_unit("u", [make_pod("p").labels(**{"not-before": "2000000000"})])
    assert cycle.not_now(late) == TooEarly(2_000_000_000)
    assert cycle.version == before
    (refusal,) = cluster.plan(late).refusals
    assert refusal.pods == late.pods
    assert refusal.reason.text() == "it may not start before 2000000000"
