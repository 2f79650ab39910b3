"""Twelve worked examples, minute by minute, under every policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.queue_peers import ByPriority, ByShareAfter
from tests.queue.worked import CONSERVATIVE, EASY, GREEDY, STRICT, Example, PlacesOfMinors, unit

from koord.core.queue.room import Run, UnitAsk
from koord.core.queue.simulation import SimulatedQuota
from koord.core.queue.usage import Decay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from koord.core.queue.settings import QueueSettings
    from koord.core.queue.simulation import Simulation

STREAM = Example(
    "AB",
    [
        *(unit(f"s{at}", "1x8", 10, 5 * at) for at in range(6)),
        unit("L", "2x8", 10, 1),
    ],
)


def check(example: Example, settings: QueueSettings, starts: str, idle: int | None = None) -> None:
    """Compare starts, written as ``unit start, unit start``, and what was idle for others."""
    simulation = example.play(settings)
    made = {key: times[-1] for key, times in simulation.history.items()}
    expected = {key: int(start) for key, start in (one.split() for one in starts.split(", "))}
    assert made == expected
    if idle is not None:
        assert simulation.idle == idle


@pytest.mark.parametrize(
    ("settings", "starts", "idle"),
    [
        pytest.param(GREEDY, "s0 0, L 35, s1 5, s2 10, s3 15, s4 20, s5 25", 0, id="greedy"),
        pytest.param(STRICT, "s0 0, L 10, s1 20, s2 20, s3 30, s4 30, s5 40", None, id="strict"),
        pytest.param(EASY, "s0 0, L 10, s1 20, s2 20, s3 30, s4 30, s5 40", 40, id="easy"),
        pytest.param(
            CONSERVATIVE, "s0 0, L 10, s1 20, s2 20, s3 30, s4 30, s5 40", 40, id="conservative"
        ),
        pytest.param(
            replace(EASY, protect_after=5),
            "s0 0, L 15, s1 5, s2 25, s3 25, s4 35, s5 35",
            40,
            id="protectAfter 5",
        ),
    ],
)
def test_1_a_stream_of_small_jobs(settings: QueueSettings, starts: str, idle: int | None) -> None:
    check(STREAM, settings, starts, idle)


def test_1_without_protection_each_small_job_more_delays_the_large_one() -> None:
    for many in (6, 12, 24):
        units = [unit(f"s{at}", "1x8", 10, 5 * at) for at in range(many)]
        starts = Example("AB", [*units, unit("L", "2x8", 10, 1)]).starts(GREEDY)
        assert starts["L"] == 5 * many + 5


ENDS_BEFORE = Example(
    "ABCD",
    [
        unit("L", "3x8", 50, 0),
        unit("S1", "1x8", 30, 1),
        unit("S2", "1x8", 100, 2),
        unit("S3", "1x4", 100, 3),
    ],
    running=[("R1", {"A": 4}, 60, 60), ("R2", {"B": 8}, 40, 40)],
)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        pytest.param(GREEDY, "L 102, S1 1, S2 2, S3 3", id="greedy"),
        pytest.param(STRICT, "L 40, S1 60, S2 90, S3 90", id="strict"),
        pytest.param(EASY, "L 40, S1 1, S2 90, S3 3", id="easy"),
        pytest.param(CONSERVATIVE, "L 40, S1 1, S2 60, S3 90", id="conservative"),
    ],
)
def test_2_who_ends_before_and_who_does_not_touch(settings: QueueSettings, starts: str) -> None:
    check(ENDS_BEFORE, settings, starts)


SECOND = Example(
    "ABCD",
    [
        unit("H", "3x8", 10, 0),
        unit("M", "4x8", 10, 1),
        unit("X", "1x8", 30, 2),
        unit("Y", "1x8", 5, 3),
    ],
    running=[("RA", {"A": 8}, 10, 10), ("RB", {"B": 8}, 10, 10)],
)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        pytest.param(GREEDY, "H 10, M 32, X 2, Y 3", id="greedy"),
        pytest.param(STRICT, "H 10, M 20, X 30, Y 30", id="strict"),
        pytest.param(EASY, "H 10, M 32, X 2, Y 3", id="easy"),
        pytest.param(replace(EASY, reserve_depth=2), "H 10, M 20, X 30, Y 3", id="depth 2"),
        pytest.param(CONSERVATIVE, "H 10, M 20, X 30, Y 3", id="conservative"),
    ],
)
def test_3_second_in_line(settings: QueueSettings, starts: str) -> None:
    check(SECOND, settings, starts)


def test_3_what_is_promised_at_minute_3() -> None:
    simulation = SECOND.make(replace(EASY, reserve_depth=2))
    promised: dict[str, Any] = {}

    def note() -> None:
        simulation.decide()
        reserved = {key: simulation.turns.reserved(key) for key in ("H", "M", "X")}
        promised.update({key: one.start if one else None for key, one in reserved.items()})

    simulation.play(SECOND.units, {3: note})
    assert promised == {"H": 10, "M": 20, "X": None}
    assert simulation.starts["X"] == 30


EARLY = Example(
    "AB",
    [unit("H", "2x8", 10, 0), unit("S", "1x8", 30, 1), unit("Z", "1x8", 40, 21)],
    running=[("R", {"A": 8}, 20, 60)],
)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        pytest.param(GREEDY, "H 61, S 1, Z 21", id="greedy"),
        pytest.param(STRICT, "H 20, S 30, Z 30", id="strict"),
        pytest.param(EASY, "H 31, S 1, Z 41", id="easy"),
        pytest.param(CONSERVATIVE, "H 31, S 1, Z 41", id="conservative"),
    ],
)
def test_4_an_early_end(settings: QueueSettings, starts: str) -> None:
    check(EARLY, settings, starts)


def test_4_the_promise_is_the_limit_and_then_the_end_of_who_came_between() -> None:
    assert promises(EARLY, EASY, "H") == {0: 60, 20: 31}


def promises(example: Example, settings: QueueSettings, key: str) -> dict[int, int]:
    """Return when which start was reserved for a unit, as far as that changed."""
    simulation = example.make(settings)
    made: dict[int, int] = {}
    decide = simulation.decide

    def watch() -> Mapping[str, int]:
        idle = decide()
        reserved = simulation.turns.reserved(key)
        if reserved is not None and [*made.values()][-1:] != [reserved.start]:
            made[simulation.room.now] = reserved.start
        return idle

    simulation.decide = watch  # type: ignore[method-assign]
    simulation.play(example.units, example.events(simulation))
    return made


def outrun(bound: int | None) -> Example:
    return Example(
        "AB",
        [
            unit("H", "2x8", 10, 0),
            unit("S", "1x8", 25, 1),
            unit("S2", "1x8", 25, 31),
            unit("S3", "1x8", 40, 32),
        ],
        running=[("R", {"A": 8}, 50, bound)],
    )


@pytest.mark.parametrize(
    ("bound", "settings", "starts", "idle"),
    [
        pytest.param(30, GREEDY, "H 90, S 1, S2 31, S3 50", 0, id="greedy"),
        pytest.param(None, EASY, "H 50, S 60, S2 60, S3 85", 392, id="declared"),
        pytest.param(30, EASY, "H 56, S 1, S2 31, S3 66", 48, id="history"),
    ],
)
def test_4b_an_estimate_that_is_outrun(
    bound: int | None, settings: QueueSettings, starts: str, idle: int
) -> None:
    check(outrun(bound), settings, starts, idle)


def test_4b_the_bound_doubles() -> None:
    assert promises(outrun(30), EASY, "H") == {0: 30, 30: 60, 50: 56}


def unknown(*, is_evictable: bool = False) -> Example:
    return Example(
        "AB",
        [
            unit("H", "2x8", 20, 0),
            unit("S1", "1x8", 4, 1),
            unit("S2", "1x8", 10, 2),
            unit("S3", "1x8", 200, 3, limit=None, is_evictable=is_evictable),
        ],
        running=[("R", {"A": 8}, 90, None)],
    )


SHORT = replace(EASY, short_limit=5)


@pytest.mark.parametrize(
    ("settings", "starts", "idle"),
    [
        pytest.param(GREEDY, "H 215, S1 1, S2 5, S3 15", 0, id="greedy"),
        pytest.param(STRICT, "H 90, S1 110, S2 110, S3 114", None, id="strict"),
        pytest.param(SHORT, "H 90, S1 1, S2 110, S3 110", 680, id="short"),
        pytest.param(replace(SHORT, max_hold=60), "H 275, S1 1, S2 65, S3 75", 480, id="maxHold"),
    ],
)
def test_5_no_run_times(settings: QueueSettings, starts: str, idle: int | None) -> None:
    check(unknown(), settings, starts, idle)


def test_5_room_is_lent_to_who_may_be_evicted() -> None:
    simulation = unknown(is_evictable=True).play(SHORT)
    assert simulation.history == {"H": [90], "S1": [1], "S2": [110], "S3": [5, 110]}
    assert simulation.idle == 0


DOMAINS = Example(
    "ABCD",
    [
        unit("H", "2x8", 20, 0, gathers=True),
        unit("S1", "1x8", 40, 1),
        unit("S2", "1x8", 25, 2),
    ],
    running=[("R1", {"A": 8}, 50, 50), ("R2", {"B": 8}, 20, 20), ("R3", {"C": 8}, 30, 30)],
    blocks={"A": "X", "B": "X", "C": "Y", "D": "Y"},
)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        pytest.param(GREEDY, "H 41, S1 1, S2 20", id="greedy"),
        pytest.param(STRICT, "H 30, S1 30, S2 50", id="strict"),
        pytest.param(EASY, "H 30, S1 20, S2 2", id="easy"),
        pytest.param(CONSERVATIVE, "H 30, S1 20, S2 2", id="conservative"),
    ],
)
def test_6_one_domain(settings: QueueSettings, starts: str) -> None:
    check(DOMAINS, settings, starts)


def test_6_who_does_not_see_domains_promises_too_much() -> None:
    blind = replace(DOMAINS, blocks={})
    assert promises(DOMAINS, EASY, "H") == {0: 30}
    assert promises(blind, EASY, "H") == {0: 20}


def minors(machine: str, *at: int) -> dict[str, int]:
    return {f"{machine}{minor}": 1 for minor in at}


PARTITIONS = Example(
    [f"{machine}{minor}" for machine in "AB" for minor in range(8)],
    [
        unit("H", "4x1", 20, 0, gathers=True),
        unit("S1", "2x1", 27, 1),
        unit("S2", "4x1", 200, 2),
        unit("S4", "2x1", 60, 15),
    ],
    running=[
        ("R1", minors("A", 0, 1), 100, 100),
        ("R2", minors("A", 4, 5), 20, 20),
        ("R3", minors("A", 6, 7), 30, 30),
        ("R4", minors("B", 0, 1, 4, 5), 50, 50),
    ],
    size=1,
    engine=PlacesOfMinors,
)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        pytest.param(GREEDY, "H 80, S1 1, S2 2, S4 20", id="greedy"),
        pytest.param(STRICT, "H 30, S1 30, S2 30, S4 50", id="strict"),
        pytest.param(EASY, "H 30, S1 1, S2 2, S4 28", id="easy"),
    ],
)
def test_7_partitions_of_devices(settings: QueueSettings, starts: str) -> None:
    check(PARTITIONS, settings, starts)


def test_7_the_places() -> None:
    simulation = PARTITIONS.make(EASY)
    places: dict[str, list[str]] = {}
    start = simulation.room.start

    def watch(job: UnitAsk, where: Mapping[str, int], lender: str = "") -> None:
        places[job.key] = sorted(where)
        start(job, where, lender)

    simulation.room.start = watch  # type: ignore[method-assign]
    simulation.play(PARTITIONS.units, {})
    assert places == {
        "H": ["A4", "A5", "A6", "A7"],
        "S1": ["A2", "A3"],
        "S2": ["B2", "B3", "B6", "B7"],
        "S4": ["A2", "A3"],
    }


BY_QUOTA = Example(
    "ABCD",
    [
        unit("H", "4x4", 20, 0, quota="T"),
        unit("S1", "1x4", 30, 1, quota="T"),
        unit("S2", "1x4", 60, 2, quota="T"),
        unit("V1", "1x8", 200, 3, quota="V"),
        unit("V2", "2x8", 200, 4, quota="V"),
    ],
    running=[("R1", {"A": 8}, 40, 40), ("R2", {"B": 4}, 10, 10)],
    quotas=[SimulatedQuota("T", 16, 16, 16), SimulatedQuota("V", 32, 32, 32)],
    has_equal_loads=True,
)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        pytest.param(GREEDY, "H 203, S1 1, S2 10, V1 3, V2 40", id="greedy"),
        pytest.param(STRICT, "H 40, S1 60, S2 60, V1 3, V2 60", id="strict"),
        pytest.param(EASY, "H 40, S1 1, S2 60, V1 3, V2 60", id="easy"),
        pytest.param(CONSERVATIVE, "H 40, S1 1, S2 60, V1 3, V2 60", id="conservative"),
    ],
)
def test_8_a_head_that_its_quota_blocks(settings: QueueSettings, starts: str) -> None:
    check(BY_QUOTA, settings, starts)


BORROWED = [("RA", {"A": 8}, 5, 5), ("RB", {"B": 8}, 10, 10), ("RC", {"C": 8}, 15, 15)]
SHARED = [
    SimulatedQuota("P", 16, 16, 16),
    SimulatedQuota("Q", 8, 8, 8),
    SimulatedQuota("S", 0, 24, 24),
]
FIRST = [unit(f"p{at}", "1x4", 100, 0, quota="P") for at in range(1, 5)]
TURNS = Example(
    "ABC",
    [*FIRST, *(unit(f"q{at}", "1x4", 100, 1, quota="Q") for at in (1, 2))],
    running=BORROWED,
    quotas=SHARED,
    quota_of={"RA": "S", "RB": "S", "RC": "S"},
)


def test_9_turns_between_quotas_by_load_before_the_ask() -> None:
    check(TURNS, replace(EASY, protect_after=30), "p1 5, p2 10, p3 10, p4 15, q1 5, q2 15")


@pytest.mark.parametrize(
    ("order", "starts"),
    [
        pytest.param(ByPriority, [5, 5, 10, 10, 15, 15], id="by since"),
        pytest.param(ByShareAfter, [5, 5, 10, 15, 10, 15], id="share after the ask"),
    ],
)
def test_9_turns_of_others(order: Any, starts: list[int]) -> None:
    made = TURNS.starts(GREEDY, make_offers=order)
    assert [made[key] for key in ("p1", "p2", "p3", "p4", "q1", "q2")] == starts


GANG_OF_Q = replace(TURNS, units=[*FIRST, unit("g", "1x8", 100, 1, quota="Q")])


def test_9b_a_gang_that_loses_to_small_ones_where_shares_count_after_the_ask() -> None:
    check(GANG_OF_Q, EASY, "p1 5, p2 5, p3 15, p4 15, g 10")
    for order in (ByPriority, ByShareAfter):
        made = GANG_OF_Q.starts(GREEDY, make_offers=order)
        assert made == {"p1": 5, "p2": 5, "p3": 10, "p4": 10, "g": 15}


USERS = Example(
    "A",
    [
        unit("u0", "1x8", 15, 0, user="u"),
        unit("v0", "1x8", 10, 15, user="v"),
        unit("v1", "1x8", 10, 16, user="v"),
        unit("u1", "1x8", 10, 17, user="u"),
        unit("w1", "1x8", 10, 18, user="w"),
    ],
)


def in_seconds(example: Example) -> Example:
    units = [
        replace(
            one,
            arrival=one.arrival * 60,
            duration=one.duration * 60,
            job=replace(one.job, limit=one.duration * 60),
        )
        for one in example.units
    ]
    return replace(example, units=units)


@pytest.mark.parametrize(
    ("decay", "starts"),
    [
        pytest.param(None, {"v1": 25, "u1": 35, "w1": 45}, id="fifo"),
        pytest.param(
            Decay(300, 300 * 10_000), {"w1": 25, "v1": 35, "u1": 45}, id="hardly ever forgotten"
        ),
        pytest.param(Decay(300, 600), {"w1": 25, "u1": 35, "v1": 45}, id="decayed"),
    ],
)
def test_10_users_with_a_half_life(decay: Decay | None, starts: Mapping[str, int]) -> None:
    made = in_seconds(USERS).starts(GREEDY, decay=decay)
    assert {key: made[key] // 60 for key in starts} == starts


def test_10_the_ledgers() -> None:
    decay = Decay(300, 600)
    assert [decay.weight(tick) for tick in range(5)] == [65536, 92682, 131072, 185364, 262144]
    assert decay.charge(8, 0, 900) == 694_296_000
    assert decay.charge(8, 900, 1500) == 1_074_019_200


HIGHER = Example(
    "AB",
    [
        unit("H", "2x8", 10, 0),
        unit("P", "1x8", 40, 10, priority=10),
        unit("W", "1x8", 15, 11),
    ],
    running=[("R1", {"A": 8}, 30, 30), ("R2", {"B": 8}, 60, 60)],
)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        pytest.param(GREEDY, "H 75, P 30, W 60", id="greedy"),
        pytest.param(STRICT, "H 70, P 30, W 80", id="strict"),
        pytest.param(EASY, "H 70, P 30, W 80", id="easy"),
        pytest.param(CONSERVATIVE, "H 70, P 30, W 80", id="conservative"),
    ],
)
def test_11_higher_priority_arrives(settings: QueueSettings, starts: str) -> None:
    check(HIGHER, settings, starts)


def test_11_the_promise_moves_once_and_for_a_cause() -> None:
    assert promises(HIGHER, EASY, "H") == {0: 60, 10: 70}


def lose_and_return(simulation: Simulation) -> Mapping[int, Callable[[], None]]:
    return {
        10: lambda: simulation.lose("B"),
        40: lambda: simulation.set_usable("B", is_usable=True),
    }


LOST = Example(
    "ABC",
    [unit("H", "2x8", 10, 0), unit("S", "1x8", 25, 15), unit("Z", "1x8", 40, 16)],
    running=[("R1", {"A": 8}, 20, 20), ("R2", {"B": 8}, 30, 30), ("R3", {"C": 8}, 50, 50)],
    events=lose_and_return,
)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        pytest.param(GREEDY, "H 50, S 20, Z 40", id="greedy"),
        pytest.param(STRICT, "H 40, S 50, Z 50", id="strict"),
        pytest.param(EASY, "H 45, S 20, Z 50", id="easy"),
        pytest.param(CONSERVATIVE, "H 45, S 20, Z 50", id="conservative"),
    ],
)
def test_11b_a_node_is_lost_and_returns(settings: QueueSettings, starts: str) -> None:
    check(LOST, settings, starts)


def test_11b_the_promise_moves_when_the_node_is_lost_and_when_it_returns() -> None:
    assert promises(LOST, EASY, "H") == {0: 30, 10: 50, 40: 45}


@pytest.mark.parametrize(
    ("end", "start", "is_evicted"),
    [pytest.param(8, 8, False, id="waits"), pytest.param(30, 2, True, id="evicts")],
)
def test_11c_waiting_is_preferred_to_evicting(end: int, start: int, *, is_evicted: bool) -> None:
    example = Example("AB", [unit("H", "2x8", 20, 0, priority=100)])
    simulation = example.make(replace(EASY, prefer_wait=10), grace=2)
    old = unit("R", "1x8", end, 0)
    simulation.add_run(Run(UnitAsk("R", "q", 1, 8), {"B": 8}, 0, end), end, old)
    simulation.play(example.units, {})
    assert simulation.starts["H"] == start
    assert (start < end) is is_evicted


TWO_HEADS = Example(
    "ABCDEFGH",
    [
        unit("HP", "3x8", 60, 0, limit=None, quota="P", gathers=True),
        unit("HQ", "3x8", 30, 1, limit=None, quota="Q", gathers=True),
        unit("S", "1x8", 60, 5, limit=None, quota="V"),
        unit("S2", "1x8", 60, 6, limit=None, quota="V"),
    ],
    running=[
        ("RC", {"C": 8}, 40, None),
        ("RD", {"D": 8}, 100, None),
        ("RE", {"E": 8}, 10, None),
        ("RF", {"F": 8}, 70, None),
        ("RG", {"G": 8}, 80, None),
        ("RH", {"H": 8}, 200, None),
    ],
    quotas=[SimulatedQuota(name, 64, 64, 64) for name in "PQVO"],
    quota_of={f"R{name}": "O" for name in "CDEFGH"},
    blocks={name: "X" if name in "ABCD" else "Y" for name in "ABCDEFGH"},
    has_equal_loads=True,
)


@pytest.mark.parametrize(
    ("settings", "starts", "idle"),
    [
        pytest.param(GREEDY, "HP 66, HQ 80, S 5, S2 6", 0, id="greedy"),
        pytest.param(replace(EASY, max_idle_share=20), "HP 40, HQ 80, S 10, S2 100", 720, id="cap"),
        pytest.param(EASY, "HP 40, HQ 80, S 100, S2 100", 1200, id="no cap"),
    ],
)
def test_12_two_heads_and_the_cap(settings: QueueSettings, starts: str, idle: int) -> None:
    check(TWO_HEADS, settings, starts, idle)


def test_who_comes_first_does_not_change_with_each_round() -> None:
    """H1 is within its guarantee at 30 only, H2 at 20 and at 30; each of them fits at 20 alone."""
    example = Example(
        "ABCDEF",
        [
            unit("H1", "3x8", 50, 0, quota="P"),
            unit("H2", "3x8", 50, 1, quota="Q"),
            *(unit(f"s{at}", "1x8", 90, 2 + at, quota="V") for at in range(6)),
        ],
        running=[
            ("R1", {"A": 8}, 30, 30),
            ("R2", {"B": 8}, 20, 20),
            ("R3", {"C": 8}, 20, 20),
            ("R4", {"D": 8}, 30, 30),
        ],
        quotas=[
            SimulatedQuota(name, least, 48, 48)
            for name, least in zip("PQV", (24, 24, 0), strict=True)
        ],
        quota_of={"R1": "P", "R2": "Q", "R3": "V", "R4": "V"},
    )
    simulation = example.make(EASY)
    promised = []

    def note() -> None:
        reserved = (simulation.turns.reserved(key) for key in ("H1", "H2"))
        promised.append(tuple(one.start if one else None for one in reserved))

    simulation.play(example.units, dict.fromkeys(range(2, 10), note))
    assert promised == [(20, 30), *[(30, 20)] * 7]
    assert (simulation.starts["H1"], simulation.starts["H2"]) == (30, 20)


def test_nobody_starts_early_at_the_cost_of_a_later_promise() -> None:
    """H is promised B and C at 20, M is promised A at 18; A and C are free at 15."""
    example = Example(
        "ABC",
        [unit("H", "2x8", 20, 0), unit("M", "1x8", 25, 1)],
        running=[("RA", {"A": 8}, 15, 18), ("RB", {"B": 8}, 20, 20), ("RC", {"C": 8}, 15, 20)],
    )
    check(example, CONSERVATIVE, "H 20, M 15")
