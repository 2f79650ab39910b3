"""What is noted of promises and of starts that are foreseen."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.queue_estimates import ByHistory, ByLimit, learn
from benchmarks.queue_policies import CONTENDERS, measure, play
from benchmarks.queue_trace import draw_kinds, make_past, make_trace
from benchmarks.queue_watch import Watched
from tests.queue import worked

from koord.core.queue.promises import MoveCause
from koord.core.queue.simulation import SimulatedQuota

TRACE = make_trace(7, 0.95, 0.3, 1.0)
OURS = next(contender for contender in CONTENDERS if contender.name == "Backfill")


def test_starts_are_foreseen_and_looking_ahead_changes_nothing() -> None:
    plain, _ = play(OURS, TRACE)
    watched, seconds = play(OURS, TRACE, ByLimit())
    assert watched.starts == plain.starts
    figures = measure(watched, TRACE, seconds)
    assert figures["foreseen"] > 0
    assert 0 <= figures["eta coverage"] <= 100


def test_without_arrivals_and_with_true_durations_starts_are_as_foreseen() -> None:
    units = [
        replace(unit, arrival=0, job=replace(unit.job, limit=unit.duration)) for unit in TRACE.units
    ]
    trace = replace(TRACE, units=tuple(units[:150]))
    watched, _ = play(OURS, trace, ByLimit())
    assert watched.foreseen
    for key, foreseen in watched.foreseen.items():
        assert watched.starts[key] == foreseen.start


def test_no_promise_moves_without_a_cause() -> None:
    watched, _ = play(OURS, TRACE)
    assert watched.promises
    assert watched.promise_figures()["moved by Other"] == 0


def test_what_is_expected_of_a_kind_is_learned_from_its_runs() -> None:
    first = TRACE.units[0]
    estimator = ByHistory(dict.fromkeys((unit.job.key for unit in TRACE.units), "nightly"))
    unit = replace(first, job=replace(first.job, limit=3600))
    assert (estimator.of(unit).expected, estimator.of(unit).bound) == (3600, 3600)
    for at, (seconds, expected) in enumerate([(500, 500), (100, 300), (300, 200)]):
        estimator.note_end(replace(unit, duration=seconds), 1000 * at)
        assert (estimator.of(unit).expected, estimator.of(unit).bound) == (expected, 3600)


def test_what_users_ran_before_a_trace_is_learned_if_it_has_ended() -> None:
    past = make_past(TRACE, 0.3)
    estimator = ByHistory(dict.fromkeys((unit.job.key for unit in past.units), "nightly"))
    learn(estimator, past)
    expected = [estimator.of(unit).expected for unit in past.units]
    assert expected != [ByLimit().of(unit).expected for unit in past.units]
    assert not {unit.job.key for unit in past.units} & {unit.job.key for unit in TRACE.units}


def test_jobs_of_one_kind_take_about_as_long() -> None:
    kinds = draw_kinds(TRACE.units, 1)
    times: dict[tuple[str, str], list[int]] = {}
    for unit in TRACE.units:
        times.setdefault((unit.user, kinds[unit.job.key]), []).append(unit.duration)
    assert all(max(each) < 1.7 * min(each) for each in times.values())
    assert max(map(len, times.values())) > 2


def test_who_took_the_promised_room_is_named_though_he_comes_later_by_now() -> None:
    """S is promised a at 20, within what is guaranteed to its quota by then, and keeps W away.

    At 5 a small one of its own quota starts, that ends at 35: so S would be over the guarantee at
    20. At 6 Q comes, within the guarantee of another quota: it has its turn before S, and a at 20.
    S is promised 50. By then it is within the guarantee again: from the next round of the same
    minute on S comes before Q, but what was promised to Q stays.
    """
    watched = worked.Example(
        nodes="abc",
        running=[("A", {"a": 6}, 20, 20), ("B", {"b": 8}, 60, 60), ("C", {"c": 7}, 200, 200)],
        quotas=[
            SimulatedQuota("others", 0, 24, 24),
            SimulatedQuota("speech", 8, 24, 24),
            SimulatedQuota("search", 8, 24, 24),
        ],
        units=[
            worked.unit("S", "1x8", 10, 0, quota="speech"),
            worked.unit("small", "1x1", 30, 5, quota="speech"),
            worked.unit("Q", "1x8", 30, 6, quota="search"),
            worked.unit("W", "1x2", 90, 4, quota="others"),
        ],
        engine=Watched,
    ).play(worked.EASY)
    assert isinstance(watched, Watched)
    assert watched.promises["S"] == [(0, 20), (6, 50)]
    assert [watched.starts[key] for key in ("S", "small", "Q")] == [50, 5, 20]
    assert watched.moves["S"] is MoveCause.GUARANTEE
