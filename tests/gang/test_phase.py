"""The phases of a PodGroup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_pod

from koord.core.gang.phase import (
    TABLE,
    PhaseInput,
    is_settled,
    make_occupied_by,
    settle_phase,
    step_phase,
)
from koord.core.gang.tally import Tally
from koord.core.model.gangs import GangPhase
from koord.core.model.pods import PodPhase

LETTERS = {
    "p": PodPhase.PENDING,
    "P": PodPhase.PENDING,
    "L": PodPhase.PENDING,
    "R": PodPhase.RUNNING,
    "S": PodPhase.SUCCEEDED,
    "F": PodPhase.FAILED,
}


def count(pods: str) -> Tally:
    """Count members: p waits, L is released, P has a node; R, S and F by their phase."""
    tally = Tally()
    for index, letter in enumerate(pods):
        pod = make_pod(f"p-{index}").phase(LETTERS[letter])
        if letter == "L":
            pod.released("n1", "plan")
        elif letter != "p":
            pod.bound("n1")
        tally.add(pod.build())
    return tally


def make_input(min_member: int, pods: str, *, compat: bool = False) -> PhaseInput:
    tally = count(pods)
    return PhaseInput(min_member, tally, len(tally.done), compat=compat)


def settle(before: str, min_member: int, pods: str) -> str:
    return settle_phase(GangPhase(before), make_input(min_member, pods))[-1]


@pytest.mark.parametrize(
    ("before", "min_member", "pods", "after"),
    [
        ("", 2, "", "Pending"),
        ("Pending", 2, "p", "Pending"),
        ("Pending", 2, "pp", "PreScheduling"),
        ("Pending", 0, "pp", "Pending"),
        ("PreScheduling", 2, "pp", "PreScheduling"),
        ("PreScheduling", 2, "p", "Pending"),
        ("PreScheduling", 2, "pL", "Scheduling"),
        ("PreScheduling", 2, "pP", "Scheduling"),
        ("Scheduling", 2, "PP", "Scheduled"),
        ("Scheduled", 2, "PR", "Scheduled"),
        ("Scheduled", 2, "RR", "Running"),
        ("Scheduled", 2, "RS", "Running"),
        ("Scheduled", 2, "SS", "Finished"),
        ("Scheduled", 2, "FF", "Failed"),
        ("Scheduled", 3, "FRR", "Scheduling"),
        ("Scheduling", 3, "FFR", "Scheduling"),
        ("Scheduling", 3, "FFF", "Failed"),
        ("Scheduled", 3, "FFS", "Failed"),
        ("Pending", 2, "SS", "Finished"),
        ("Pending", 2, "FF", "Failed"),
        ("Pending", 3, "PP", "Pending"),
        ("Running", 2, "", "Pending"),
        ("Running", 3, "RRp", "Scheduling"),
        ("Scheduling", 4, "RRRR", "Running"),
    ],
)
def test_settled_phases(before: str, min_member: int, pods: str, after: str) -> None:
    assert settle(before, min_member, pods) == after


@pytest.mark.parametrize(
    ("before", "min_member", "pods", "after"),
    [
        ("Running", 2, "FRR", "Running"),
        ("Running", 2, "FRp", "Scheduling"),
        ("Failed", 2, "FFpp", "PreScheduling"),
        ("Failed", 2, "FFp", "Failed"),
        ("Failed", 2, "FRR", "Running"),
        ("Failed", 2, "", "Failed"),
        ("Failed", 2, "F", "Failed"),
        ("Finished", 2, "", "Finished"),
        ("Finished", 2, "S", "Finished"),
        ("Finished", 2, "SSR", "Finished"),
        ("Finished", 2, "pp", "PreScheduling"),
        ("Finished", 2, "p", "Pending"),
        ("Running", 2, "pp", "PreScheduling"),
    ],
)
def test_group_starts_over_with_new_pods(
    before: str, min_member: int, pods: str, after: str
) -> None:
    assert settle(before, min_member, pods) == after


@pytest.mark.parametrize(
    ("before", "pods", "after"),
    [
        ("PreScheduling", "pp", "Scheduling"),
        ("Running", "FRR", "Failed"),
        ("Failed", "RR", "Failed"),
        ("Finished", "pp", "Finished"),
    ],
)
def test_compat_phases(before: str, pods: str, after: str) -> None:
    counts = make_input(2, pods, compat=True)
    assert step_phase(GangPhase(before), counts) == after


@pytest.mark.parametrize(
    ("scheduled", "running", "hours", "settled"),
    [(2, 0, 49, True), (2, 0, 48, False), (1, 0, 49, False), (3, 0, 49, False), (2, 1, 49, False)],
)
def test_when_koordinator_looks_at_a_group_no_more(
    scheduled: int, running: int, hours: int, *, settled: bool
) -> None:
    assert is_settled(2, (scheduled, running), hours * 3600.0) is settled


@given(
    st.sampled_from(list(GangPhase)),
    st.integers(0, 4),
    st.text("pLPRSF", max_size=6),
    st.integers(0, 6),
    st.booleans(),
)
def test_every_phase_settles(
    before: GangPhase,
    min_member: int,
    pods: str,
    done: int,
    compat: bool,  # noqa: FBT001 - drawn
) -> None:
    tally = count(pods)
    counts = PhaseInput(min_member, tally, min(done, len(tally.done)), compat=compat)
    path = settle_phase(before, counts)
    assert len(path) <= len(GangPhase)
    assert step_phase(path[-1], counts) is path[-1]


def test_every_phase_has_a_row_for_any_counts() -> None:
    for phase in GangPhase:
        rows = [row for row in TABLE if phase in row.origins]
        assert rows
        assert rows[-1].when.startswith(("otherwise", "always"))


def test_owners_are_sorted() -> None:
    assert make_occupied_by("ns", ["b", "a"]) == "ns/a,ns/b"
    assert make_occupied_by("ns", []) == ""
