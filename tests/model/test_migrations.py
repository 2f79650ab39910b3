"""Moves survive crashes at every write: nobody is evicted without a place, and no place is left."""

from collections import Counter

import pytest
from tests.model.migrations import KINDS, Move, run_move
from tests.model.network import CrashPoint
from tests.support.laws import sample

from koord.controllers.migration_places import MigrationPlaces
from koord.core.migration import steps
from koord.core.migration.model import JobReason, JobStatus, JobStep
from koord.core.migration.steps import SetStatus
from koord.kube.migrations import MigrationApi

CRASHES = 3
"""Of each kind of move in every run, from its first write to its last."""


def points_of(seed: int) -> list[CrashPoint]:
    """Return all crash points of a move: before and after each of its writes."""
    writes = range(1, run_move(Move(seed)).writes + 1)
    return [CrashPoint(at, is_before) for at in writes for is_before in (True, False)]


def try_all(moves: list[Move]) -> Counter[str]:
    """Run moves; return how they ended."""
    ends = Counter[str]()
    for move in moves:
        result = run_move(move)
        assert not result.violations, f"{move}\n{result.violations}"
        ends.update(result.phases.values())
        ends["crashed"] += result.has_crashed
        ends["evicted"] += result.evicted
    return ends


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", ["one", "group", "late group"])
def test_a_crash_at_a_write_of_a_move(kind: str) -> None:
    seed = KINDS.index(kind)
    points = sample(points_of(seed), CRASHES)
    ends = try_all([Move(seed, point) for point in points])
    assert ends["crashed"] == len(points)
    assert ends["Succeeded"] > 0 or kind == "late group"


@pytest.mark.timeout(0)
def test_what_people_do_meanwhile_and_requests_that_are_lost() -> None:
    ends = try_all([Move(seed, has_faults=seed % 2 == 1) for seed in range(len(KINDS))])
    assert ends["evicted"] > 0
    assert ends["Failed"] > 0


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_crash_at_every_write_of_every_kind_of_move() -> None:
    moves = [
        Move(seed, point, has_faults=seed >= len(KINDS))
        for seed in range(3 * len(KINDS))
        for point in points_of(seed)
    ]
    assert len(moves) >= 500
    ends = try_all(moves)
    assert ends["crashed"] >= 500


@pytest.mark.timeout(0)
def test_a_place_that_is_never_given_up_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MigrationApi, "release", _do_nothing)
    assert any(run_move(Move(seed)).violations for seed in (KINDS.index("no room"), 7))


@pytest.mark.timeout(0)
def test_an_eviction_before_there_is_a_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MigrationPlaces, "has_place", lambda *_: True)
    monkeypatch.setattr(steps, "_find_broken", lambda *_: None)
    monkeypatch.setattr(steps, "_take_place", _evict_at_once)
    assert run_move(Move(KINDS.index("no room"))).violations


def _evict_at_once(status: JobStatus, *_: object) -> SetStatus:
    return SetStatus(status.with_step(JobStep.EVICTION, JobReason.EVICTING, is_true=False))


async def _do_nothing(*_: object) -> None:
    """Stand in for a write that is forgotten."""
