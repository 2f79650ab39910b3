"""What waits is found out once, and is what a new queue would say after any edits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.support.laws import examples

from koord.answers import pending
from koord.answers.edits import (
    AddNodes,
    Cordon,
    Delete,
    Drain,
    Edit,
    EditError,
    SetMinMember,
    SetPriority,
    SetQuota,
    Submit,
    Trial,
)
from koord.answers.queue_view import view_queue
from koord.core.engine import queue
from koord.core.engine.scoring import Scoring

if TYPE_CHECKING:
    import pytest
    from tests.cluster import FakeCluster


def make_state() -> FakeCluster:
    cluster = make_cluster(3)
    cluster.quotas(make_quota("q", max={GPU: 8}))
    for name, least, members in (("a", 2, 2), ("b", 3, 2)):
        cluster.pod_groups(make_pod_group(f"default/{name}", least))
        pods = (make_pod(f"{name}-{at}").gang(f"default/{name}").gpu(4) for at in range(members))
        cluster.pods(*pods)
    cluster.pods(make_pod("single").gpu(8).quota("q"), make_pod("runs").gpu(2).running("n0"))
    return cluster


NEW = make_pod("new").gpu(1).build()
MEMBER = make_pod("b-2").gang("default/b").gpu(4).build()
EDITS: list[Edit] = [
    AddNodes("n0", 2),
    Cordon(("n1",)),
    Drain(("n0",)),
    Delete("default/a"),
    Delete("default/single"),
    SetMinMember("default/b", 2),
    SetPriority("default/single", 9),
    SetQuota(make_quota("q", max={GPU: 64})),
    Submit((NEW,)),
    Submit((MEMBER,)),
    Submit((replace(NEW, gang=MEMBER.gang),)),
]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from(EDITS), max_size=5), st.integers(0, 5))
def test_after_any_edits_what_waits_is_what_a_new_queue_says(
    edits: list[Edit], undone: int
) -> None:
    state = make_state().state
    first = pending.find_pending(state)
    assert first == queue.find_pending(state)
    trial, marks = Trial(state), []
    for edit in edits:
        marks.append(trial.checkpoint())
        try:
            edit.apply(trial)
        except EditError:
            trial.undo(marks[-1])
        assert pending.find_pending(state) == queue.find_pending(state)
    for mark in reversed(marks[-undone:] if undone else []):
        trial.undo(mark)
        assert pending.find_pending(state) == queue.find_pending(state)
    trial.undo()
    assert pending.find_pending(state) == first


def test_units_that_lack_the_same_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who uses what they lack was found again for each: with thousands that takes minutes."""
    cluster = make_cluster(2)
    cluster.pods(*(make_pod(f"runs-{at}").gpu(4).running(f"n{at % 2}") for at in range(4)))
    cluster.pods(*(make_pod(f"waits-{at}").gpu(8) for at in range(30)))
    asked: Counter[str] = Counter()
    pods_on = cluster.state.pods_on

    def count(node: str) -> object:
        asked[node] += 1
        return pods_on(node)

    monkeypatch.setattr(cluster.state, "pods_on", count)
    entries = view_queue(cluster.state, Scoring())
    assert len(entries) == 30
    assert all("(default/runs-0" in entry.reason.text() for entry in entries)
    assert asked == {"n0": 1, "n1": 1}
