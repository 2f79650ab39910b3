"""Laws of turns, protection and use, on small random clusters in virtual time."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, getcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.queue import usage
from koord.core.queue.counted_room import CountedNode, CountedRoom, QuotaLimit, _combine
from koord.core.queue.room import Run, UnitAsk
from koord.core.queue.settings import Policy, QueueSettings
from koord.core.queue.simulation import SimulatedQuota, Simulation, TraceUnit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

NODES = [CountedNode(name, 8, block) for name, block in zip("ABCD", "XXYY", strict=True)]
LONGEST = 60
QUEUE = SimulatedQuota("q", 32, 32, 32)


def jobs(*, limited: bool = True) -> st.SearchStrategy[list[TraceUnit]]:
    """Return units of one seed each."""
    return st.randoms(use_true_random=True).map(lambda dice: draw_jobs(dice, limited=limited))


def draw_jobs(dice: Random, *, limited: bool) -> list[TraceUnit]:
    """Units of one queue; with ``limited`` all say when they have ended for certain."""
    units = []
    for at in range(dice.randint(1, 9)):
        duration = dice.randint(1, LONGEST)
        limit = dice.randint(duration, LONGEST) if limited or dice.random() < 0.5 else None
        job = UnitAsk(
            f"u{at}",
            "q",
            dice.randint(1, 4),
            dice.choice([1, 2, 4, 8]),
            limit,
            gathers=dice.random() < 0.5,
        )
        units.append(TraceUnit(job, dice.randint(0, 40), duration))
    return units


def make_simulation(**changes: Any) -> Simulation:
    ours = replace(QueueSettings(protect_after=0, short_limit=0), **changes)
    return Simulation(NODES, [QUEUE], lambda _: ours, least_gain=1, least_remainder=60)


def play(units: Sequence[TraceUnit], **changes: Any) -> Simulation:
    simulation = make_simulation(**changes)
    simulation.play(units, {})
    return simulation


@given(jobs(), st.sampled_from([Policy.STRICT, Policy.BACKFILL]), st.integers(0, 10))
def test_nobody_starves(units: list[TraceUnit], policy: Policy, protect_after: int) -> None:
    """Each starts once those ahead of it have had their time, and those before it was protected."""
    simulation = play(units, policy=policy, protect_after=protect_after)
    ordered = sorted(units, key=lambda unit: (unit.arrival, unit.job.key))
    for ahead, unit in enumerate(ordered):
        if not simulation.room.fits_ever(unit.job):
            continue
        longest = (ahead + 1) * (protect_after + LONGEST)
        assert simulation.starts[unit.job.key] <= unit.arrival + longest


def test_without_protection_a_stream_of_small_units_starves_a_large_one() -> None:
    stream = [TraceUnit(UnitAsk(f"s{at}", "q", 1, 8, 10), 3 * at, 10) for at in range(60)]
    large = TraceUnit(UnitAsk("large", "q", 4, 8, 10), 4, 10)
    bound = large.arrival + 10 + 2 * 10
    starts = {
        policy: play([*stream, large], policy=policy).starts["large"]
        for policy in (Policy.BEST_EFFORT, Policy.STRICT, Policy.BACKFILL)
    }
    assert starts[Policy.STRICT] <= bound
    assert starts[Policy.BACKFILL] <= bound
    assert starts[Policy.BEST_EFFORT] > 100, "the law of starvation does not hold without it"


@given(jobs(), st.integers(1, 16))
def test_a_promise_is_kept(units: list[TraceUnit], depth: int) -> None:
    """Nothing here may move one: no priorities, other quotas, lost nodes or late ends."""
    simulation = make_simulation(reserve_depth=depth)
    promises: dict[str, int] = {}
    decide = simulation.decide

    def watch() -> Any:
        idle = decide()
        for key in simulation.waiting:
            reserved = simulation.turns.reserved(key)
            if reserved is not None and not reserved.is_open and depth == 1:
                assert reserved.start <= promises.get(key, reserved.start)
                promises[key] = reserved.start
        return idle

    simulation.decide = watch  # type: ignore[method-assign]
    simulation.play(units, {})
    for key, promise in promises.items():
        assert simulation.starts[key] <= promise


@given(jobs(limited=False), st.sampled_from(list(Policy)))
def test_without_reservations_everybody_starts_who_fits(
    units: list[TraceUnit], policy: Policy
) -> None:
    simulation = make_simulation(policy=policy)
    decide = simulation.decide

    def watch() -> Any:
        idle = decide()
        is_free = policy is Policy.BEST_EFFORT or not any(
            simulation.turns.reserved(key) for key in simulation.waiting
        )
        if is_free and policy is not Policy.STRICT:
            waiting = [unit.job for unit in simulation.waiting.values()]
            assert not [job for job in waiting if simulation.room.fit(job, ())]
        return idle

    simulation.decide = watch  # type: ignore[method-assign]
    simulation.play(units, {})


@given(jobs(limited=False), st.sampled_from(list(Policy)), st.randoms(use_true_random=False))
def test_the_order_of_lists_does_not_matter(
    units: list[TraceUnit], policy: Policy, random: Any
) -> None:
    mixed = list(units)
    random.shuffle(mixed)
    assert play(units, policy=policy).starts == play(mixed, policy=policy).starts


@given(jobs(), st.sampled_from(list(Policy)))
def test_equal_units_start_in_the_order_in_which_they_came(
    units: list[TraceUnit], policy: Policy
) -> None:
    equal = [replace(unit, job=replace(units[0].job, key=unit.job.key)) for unit in units]
    starts = play(equal, policy=policy).starts
    ordered = sorted(equal, key=lambda unit: (unit.arrival, unit.job.key))
    assert all(
        starts[first.job.key] <= starts[second.job.key]
        for first, second in pairwise(ordered)
        if second.job.key in starts
    )


@given(jobs(), st.sampled_from(list(Policy)))
def test_who_never_fits_delays_nobody(units: list[TraceUnit], policy: Policy) -> None:
    huge = TraceUnit(UnitAsk("huge", "q", 5, 8, 10), 0, 10)
    assert play([huge, *units], policy=policy).starts == play(units, policy=policy).starts


@given(jobs(limited=False), st.sampled_from(list(Policy)))
def test_no_node_and_no_quota_is_used_beyond_what_it_has(
    units: list[TraceUnit], policy: Policy
) -> None:
    simulation = make_simulation(policy=policy)
    decide = simulation.decide

    def watch() -> Any:
        idle = decide()
        room = simulation.room
        for node in NODES:
            assert sum(run.places.get(node.name, 0) for run in room.runs.values()) <= node.amount
        assert room.used("q", room.now) <= QUEUE.max
        return idle

    simulation.decide = watch  # type: ignore[method-assign]
    simulation.play(units, {})


@given(jobs(), st.data())
def test_less_that_runs_never_makes_a_first_start_later(units: list[TraceUnit], data: Any) -> None:
    limits = {"q": QuotaLimit(99, 99)}
    room = CountedRoom({node.name: node for node in NODES}, limits)
    for unit in units[1:]:
        places = room.fit(unit.job, ())
        if places is not None:
            room.start(unit.job, places)
    before = room.find_start(units[0].job, ())
    if before is None or not room.runs:
        return
    room.end(data.draw(st.sampled_from(sorted(room.runs))))
    after = room.find_start(units[0].job, ())
    assert after is not None
    assert after.start <= before.start


ROOMS = st.lists(
    st.tuples(st.integers(4, 7), st.lists(st.integers(0, 7), min_size=1, max_size=3)),
    min_size=1,
    max_size=6,
)


@given(ROOMS, st.integers(1, 4))
def test_nodes_for_one_pod_each_are_chosen_as_any_nodes(
    rooms: list[tuple[int, list[int]]], pods: int
) -> None:
    nodes = [
        (f"n{at}", room, [(90 - 30 * step, free) for step, free in enumerate(sorted(idle))])
        for at, (room, idle) in enumerate(rooms)
    ]
    job, larger = UnitAsk("u", "q", pods, 4), ("z", 8, [(10**6, 8)])
    assert list(_combine(job, nodes)) == list(_combine(job, [*nodes, larger]))[: len(nodes) >= pods]


SPANS = st.lists(st.integers(0, 20_000), min_size=2, max_size=6).map(sorted)


@given(SPANS, st.integers(1, 64))
def test_use_does_not_depend_on_the_steps_in_which_it_is_added(
    times: list[int], amount: int
) -> None:
    decay = usage.Decay(half_life=3600)
    parts = sum(decay.charge(amount, start, end) for start, end in pairwise(times))
    assert parts == decay.charge(amount, times[0], times[-1])


@given(st.integers(0, 10_000), st.sampled_from([2, 12, 2016]))
def test_use_one_half_life_later_weighs_exactly_twice(tick: int, ticks: int) -> None:
    decay = usage.Decay(300, 300 * ticks)
    assert decay.weight(tick + ticks) == 2 * decay.weight(tick)


@pytest.mark.parametrize("ticks", [2, 3, 12, 2016])
def test_weights_are_rounded_from_the_exact_ones(ticks: int) -> None:
    getcontext().prec = 40
    exact = [65536 * Decimal(2) ** (Decimal(tick) / ticks) for tick in range(ticks)]
    assert usage.make_table(ticks) == tuple(int(value + Decimal("0.5")) for value in exact)


def test_a_unit_that_has_just_started_counts_as_if_it_had_run_for_a_while() -> None:
    decay = usage.Decay(300, 600)
    assert decay.charge_running(8, 600, 601) == 8 * 900 * decay.weight(2)
    assert decay.charge_running(8, 600, 1500) == decay.charge(8, 600, 1500)


def test_weights_of_users_divide_what_they_used() -> None:
    used = {"gpu": 600, "cpu": 10}
    capacity = {"gpu": 32, "cpu": 64}
    assert usage.share(used, capacity, 3) * 3 == usage.share(used, capacity, 1)
    assert usage.share({"other": 5}, capacity, 1) == 0


def test_a_simulation_ends_with_what_runs() -> None:
    simulation = make_simulation()
    simulation.add_run(Run(UnitAsk("old", "q", 1, 8), {"A": 8}, 0, 50), 30)
    simulation.play([TraceUnit(UnitAsk("new", "q", 4, 8, 10), 1, 10)], {})
    assert simulation.starts == {"new": 30}
