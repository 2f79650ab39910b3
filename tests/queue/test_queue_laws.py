"""Laws of queues, on random clusters with several quotas, in virtual time.

Ten thousand seeds of each: ``make laws EXAMPLES=10000 ARGS=tests/queue``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.queue.scenes import LONGEST, Scene, draw_scene, scenes
from tests.support.laws import examples
from typing_extensions import override

from koord.core.queue import usage
from koord.core.queue.counted_room import CountedNode, CountedRoom, QuotaLimit
from koord.core.queue.order import Aging, OrderTerms, QueueQuota, Waiting, make_tournament
from koord.core.queue.queue_turns import QueueTurns
from koord.core.queue.room import FOREVER, UnitAsk
from koord.core.queue.settings import Policy, QueueSettings
from koord.core.queue.simulation import SimulatedQuota, SimulatedShares, Simulation, TraceUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from koord.core.queue.protection import TurnsOutcome
    from koord.core.queue.queue_turns import Offers, TurnsState

ANY = tuple(Policy)
KINDS_2: dict[str, Any] = {"limited": False, "policies": [Policy.BACKFILL, Policy.BEST_EFFORT]}
KINDS_6: dict[str, Any] = {"limited": False, "policies": ANY, "priorities": (0, 10)}
KINDS_10: dict[str, Any] = {"quotas": 1, "priorities": (0, 0, 10)}
KINDS_12: dict[str, Any] = {"policies": ANY}
FEWER = 20
"""Long scenes in every run."""


def seed(number: int, **kinds: Any) -> Scene:
    """Return a scene that has broken a law once."""
    return draw_scene(Random(number), **kinds)  # noqa: S311 - chance that can be repeated


def starves(scene: Scene) -> bool:
    """Whether a unit waits longer than all that can be ahead of it may take."""
    simulation = scene.play()
    step = scene.settings.protect_after + LONGEST + scene.settings.short_limit
    ordered = sorted(scene.units, key=lambda unit: (unit.arrival, unit.job.key))
    return any(
        simulation.starts[unit.job.key] > unit.arrival + (ahead + 1) * step
        for ahead, unit in enumerate(ordered)
        if simulation.room.fits_ever(unit.job)
    )


@given(scenes(quotas=1))
def test_1_nobody_starves(scene: Scene) -> None:
    assert not starves(scene)


@st.composite
def streams(draw: Any) -> Scene:
    """One large unit, and small ones that come and come: one node is never free with the others."""
    scene: Scene = draw(scenes(quotas=1))
    size = len(scene.nodes)
    gap = draw(st.integers(20, LONGEST - 1))
    base = replace(scene.units[0], duration=LONGEST, arrival=1)
    job = replace(base.job, quota="q0", amount=8, limit=LONGEST, gathers=False)
    small = [
        replace(base, arrival=at * gap // size, job=replace(job, key=f"s{at:02}", pods=1))
        for at in range(12 * size)
    ]
    large = replace(base, job=replace(job, key="large", pods=size))
    quota = replace(scene.quotas[0], max=8 * size)
    return replace(scene, units=[*small, large], quotas=[quota])


@given(streams())
@settings(max_examples=examples(FEWER))
def test_1_a_stream_starves_nobody(scene: Scene) -> None:
    assert not starves(scene)


@given(streams())
@settings(max_examples=examples(FEWER // 2), phases=[Phase.generate])
def test_1_does_not_hold_with_best_effort(scene: Scene) -> None:
    assert starves(scene.under(policy=Policy.BEST_EFFORT))


def reserved_of(simulation: Simulation, *, but: str = "") -> list[Any]:
    keys = simulation.turns.reserved_units()
    return [simulation.turns.reserved(key) for key in keys if key != but]


@example(seed(4000, **KINDS_2))
@given(scenes(**KINDS_2))
def test_2_nobody_waits_who_delays_nobody(scene: Scene) -> None:
    def watch(simulation: Simulation) -> None:
        for key, unit in simulation.waiting.items():
            if simulation.room.fits_ever(unit.job):
                others = reserved_of(simulation, but=key)
                assert simulation.room.fit(unit.job, others) is None

    scene.play(watch)


SHAPES = st.sampled_from([(1, 4, 20), (1, 8, 20), (2, 8, 30), (3, 4, None)])


@given(scenes(quotas=2, limited=False, priorities=(0, 10), policies=ANY), st.data())
def test_3_equal_units_start_in_their_order_among_others(scene: Scene, data: Any) -> None:
    units = []
    for unit in scene.units:
        pods, amount, limit = data.draw(SHAPES)
        job = replace(unit.job, pods=pods, amount=amount, limit=limit, gathers=False)
        units.append(replace(unit, job=job, duration=min(unit.duration, limit or LONGEST)))
    simulation = replace(scene, units=units).play()
    ordered = sorted(units, key=lambda unit: (unit.arrival, unit.job.key))
    for first, second in combinations(ordered, 2):
        is_equal = first.priority == second.priority
        if is_equal and replace(first.job, key="") == replace(second.job, key=""):
            starts = simulation.starts
            assert starts.get(first.job.key, FOREVER) <= starts.get(second.job.key, FOREVER)


def test_3_room_held_without_a_known_time_keeps_no_earlier_unit_waiting() -> None:
    """Its own start is promised for later, but what is held for the one behind promises nothing."""
    jobs = [
        (3, 4, None),
        (3, 4, None),
        (1, 4, 20),
        (1, 4, 20),
        (3, 4, None),
        (1, 8, 20),
        (1, 4, 20),
    ]
    times = [(0, 2, 0), (1, 1, 10), (0, 3, 0), (0, 1, 0), (1, 1, 10), (0, 1, 0), (0, 3, 0)]
    units = [
        TraceUnit(UnitAsk(f"u{at}", "q0", *job), *time)
        for at, (job, time) in enumerate(zip(jobs, times, strict=True))
    ]
    nodes = [CountedNode(name, 8) for name in "abc"]
    ours = QueueSettings(protect_after=0, short_limit=0)
    starts = Scene(nodes, [SimulatedQuota("q0", 24, 24, 24)], units, ours).play().starts
    assert starts["u1"] <= starts["u4"]


def test_3_who_leaves_room_to_a_promise_is_not_passed_by_an_equal_one() -> None:
    """At 36 nodes are free early, where u0 has a promise: u2 leaves them, and so does u3."""
    units = [
        TraceUnit(UnitAsk("u1", "q1", 2, 8, 30), 9, 30),
        TraceUnit(UnitAsk("u4", "q0", 2, 8, 30), 12, 24),
        TraceUnit(UnitAsk("u2", "q0", 1, 8, 20), 14, 20),
        TraceUnit(UnitAsk("u0", "q1", 3, 4, None), 25, 35),
        TraceUnit(UnitAsk("u3", "q0", 1, 8, 20), 33, 20),
    ]
    nodes = [CountedNode(name, 8) for name in "abcd"]
    quotas = [SimulatedQuota("q0", 16, 32, 26), SimulatedQuota("q1", 16, 32, 24)]
    ours = QueueSettings(protect_after=0, short_limit=5, max_idle_share=100)
    starts = Scene(nodes, quotas, units, ours).play().starts
    assert starts["u2"] <= starts["u3"]


@given(scenes(quotas=1))
def test_5_each_protected_unit_starts_by_its_promise(scene: Scene) -> None:
    """Nothing here may move one: no priorities, other quotas, lost nodes or late ends."""
    promised: dict[str, int] = {}

    def watch(simulation: Simulation) -> None:
        for reserved in reserved_of(simulation):
            promise = promised.setdefault(reserved.job.key, reserved.start)
            assert reserved.start <= promise
            promised[reserved.job.key] = reserved.start

    simulation = scene.play(watch)
    for key, promise in promised.items():
        assert simulation.starts[key] <= promise


@given(scenes(quotas=1), st.data())
def test_4_what_starts_leaves_what_is_reserved_possible(scene: Scene, data: Any) -> None:
    """Who started before a protected unit ends by its promise, or does not touch its room."""

    def watch(simulation: Simulation) -> None:
        first = next(iter(reserved_of(simulation)), None)
        if first is not None and not first.is_open and scene.settings.reserve_depth == 1:
            assert simulation.room.is_possible(first, ())

    scene.play(watch)


@example(seed(863, **KINDS_6))
@example(seed(5032, **KINDS_6))
@example(seed(5507, **KINDS_6))
@example(seed(6390, **KINDS_6))
@example(seed(18380, **KINDS_6))
@example(seed(30632, **KINDS_6))
@given(scenes(**KINDS_6))
def test_6_another_round_at_the_same_time_changes_nothing(scene: Scene) -> None:
    def watch(simulation: Simulation) -> None:
        before = dict(simulation.starts), reserved_of(simulation)
        Simulation.decide(simulation)
        assert before[0] == simulation.starts

    assert scene.play(watch).starts == scene.play().starts


class RestlessTurns(QueueTurns):
    """Stands in for turns in which what is reserved moves to and fro, and nobody starts."""

    rounds = 0

    @override
    def decide(self, tournament: Offers, jobs: Mapping[str, UnitAsk]) -> TurnsOutcome:
        self.rounds += 1
        outcome = super().decide(tournament, jobs)
        outcome.is_unsettled = True
        return outcome

    @override
    def state(self) -> TurnsState:
        return ((self.rounds % 3,),)


@given(scenes())
@settings(max_examples=examples(FEWER))
def test_6_rounds_at_one_time_end_once_one_begins_as_another_did(scene: Scene) -> None:
    simulation = scene.make()
    simulation.turns = turns = RestlessTurns(simulation.room, lambda _: scene.settings)
    for unit in scene.units:
        simulation.submit(unit)
    simulation.decide()
    assert turns.rounds <= 4 * (1 + len(simulation.starts))


WAITING = st.builds(
    Waiting,
    key=st.integers(0, 99).map("u{}".format),
    queue=st.just("q"),
    user=st.sampled_from("ab"),
    priority=st.sampled_from([0, 10]),
    since=st.integers(0, 3),
    ask=st.integers(1, 8).map(lambda amount: {"gpu": amount}),
    head_since=st.none() | st.integers(0, 9),
    protected=st.none() | st.integers(1, 3),
    is_repair=st.booleans(),
)
UNITS = st.lists(WAITING, min_size=3, max_size=6, unique_by=lambda unit: unit.key)


def order_of(units: list[Waiting], quotas: list[QueueQuota] | None = None) -> list[str]:
    quota = QueueQuota("q", "", {"gpu": 0}, {"gpu": 8}, {"gpu": 32})
    terms = OrderTerms(9, lambda _: Aging(2, 4), SimulatedShares(None, 1))
    tournament = make_tournament(quotas or [quota], units, terms)
    return [unit.key for unit in tournament.turns(starts=True)]


@given(UNITS, st.data())
def test_7_the_order_of_two_does_not_depend_on_a_third(units: list[Waiting], data: Any) -> None:
    order = order_of(units)
    gone = data.draw(st.sampled_from(units))
    rest = [unit for unit in units if unit is not gone]
    assert order_of(rest) == [key for key in order if key != gone.key]
    mixed = data.draw(st.permutations(units))
    assert order_of(mixed) == order


@given(UNITS)
def test_7_between_quotas_each_has_one_turn(units: list[Waiting]) -> None:
    placed = [replace(unit, queue=f"q{at % 3}") for at, unit in enumerate(units)]
    quotas = [QueueQuota(f"q{at}", "", {"gpu": at}, {"gpu": 4}, {"gpu": 8}) for at in range(3)]
    order = order_of(placed, quotas)
    assert sorted(order) == sorted(unit.key for unit in units)
    assert order_of(placed[::-1], quotas[::-1]) == order


@given(st.integers(0, 20_000), st.integers(0, 20_000), st.integers(1, 64))
def test_8_weights_that_all_double_change_no_comparison(
    start: int, other: int, amount: int
) -> None:
    decay = usage.Decay(300, 600)
    half = 600
    one, two = decay.charge(amount, start, start + 500), decay.charge(3, other, other + 900)
    later = (
        decay.charge(amount, start + half, start + half + 500),
        decay.charge(3, other + half, other + half + 900),
    )
    assert later == (2 * one, 2 * two)


@given(st.integers(0, 100_000))
def test_8_a_tick_later_weighs_a_little_more(tick: int) -> None:
    decay = usage.Decay()
    ticks = usage.HALF_LIFE_SECONDS // usage.TICK_SECONDS
    ratio = decay.weight(tick + 1) / decay.weight(tick)
    assert abs(ratio - 2 ** (1 / ticks)) < 2**-15


@given(scenes(quotas=1))
def test_9_another_free_node_never_makes_the_first_start_later(scene: Scene) -> None:
    starts = []
    for more in (0, 1):
        nodes = [*scene.nodes, *(CountedNode(f"x{at}", 8, "b0") for at in range(more))]
        room = CountedRoom({node.name: node for node in nodes}, {"q0": QuotaLimit(999, 999)})
        for at, unit in enumerate(scene.units[1:]):
            node = scene.nodes[at % len(scene.nodes)].name
            job = replace(unit.job, pods=1)
            if room.free(node) >= job.amount:
                room.start(job, {node: job.amount})
        starts.append(room.find_start(scene.units[0].job, ()))
    before, after = starts
    if before is not None:
        assert after is not None
        assert after.start <= before.start


EVENTS = st.dictionaries(st.integers(0, 60), st.sampled_from(["lose", "quota", "none"]), max_size=3)


@example(seed(80, **KINDS_10), {})
@example(seed(1923, **KINDS_10), {})
@given(scenes(**KINDS_10), EVENTS)
def test_10_a_promise_moves_later_for_causes_only(scene: Scene, events: dict[int, str]) -> None:
    """Without a unit of higher priority, a lost node or a new quota no promise moves later."""
    promised: dict[str, int] = {}

    def happen(kind: str) -> Callable[[Simulation], None]:
        def event(simulation: Simulation) -> None:
            if kind == "lose":
                simulation.lose(scene.nodes[0].name)
            if kind == "quota":
                quota = scene.quotas[0]
                simulation.set_quota(replace(quota, max=max(8, quota.max // 2)))

        return event

    def watch(simulation: Simulation) -> None:
        now = simulation.room.now
        has_cause = events.get(now, "none") != "none" or any(
            now in (unit.arrival, simulation.starts.get(unit.job.key)) and unit.priority
            for unit in scene.units
        )
        for key, unit in simulation.waiting.items():
            reserved = simulation.turns.reserved(key)
            is_first = not any(
                other.priority > unit.priority for other in simulation.waiting.values()
            )
            if key in promised and is_first and not has_cause:
                assert reserved is not None
                assert reserved.start <= promised[key]
            promised.pop(key, None)
            if reserved is not None:
                promised[key] = reserved.start

    scene.under(reserve_depth=1).play(watch, {at: happen(kind) for at, kind in events.items()})


@given(scenes(limited=False, quotas=2, priorities=(0, 0, 10, 20)))
def test_11_nobody_is_evicted_for_who_has_no_higher_priority(scene: Scene) -> None:
    """Turns that age bring turns only."""
    priority = {unit.job.key: unit.priority for unit in scene.units}

    def watch(simulation: Simulation) -> None:
        for key in simulation.evicted:
            higher = [*simulation.waiting, *simulation.starts]
            assert any(priority[other] > priority[key] for other in higher)

    scene.under(age_step=1, age_tiers=40).play(watch, grace=3)


@example(seed(138, **KINDS_12))
@given(scenes(**KINDS_12))
def test_12_who_never_fits_delays_nobody(scene: Scene) -> None:
    unit = scene.units[0]
    huge = replace(unit, arrival=0, job=replace(unit.job, key="huge", pods=99, amount=8))
    more = replace(scene, units=[huge, *scene.units])
    assert more.play().starts == scene.play().starts
