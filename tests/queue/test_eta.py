"""When units are expected to start: the planner run forward over what is expected to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.cluster import SCORING, make_cluster

from koord.core.engine.cycle import Cycle
from koord.core.engine.queue import find_pending
from koord.core.queue.eta import Ending, Outlook
from koord.core.queue.run_time import Knowledge, RunTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.cluster import FakeCluster

    from koord.core.engine.cycle import Removed
    from koord.core.model.plan import Unit
    from koord.core.model.pods import Pod
    from koord.core.queue.eta import Forecast

NOW = 1000.0


def look(
    cluster: FakeCluster,
    ends: Mapping[str, tuple[float | None, Knowledge]],
    times: Mapping[str, tuple[int, Knowledge]],
) -> Mapping[str, Forecast]:
    """Look ahead; ``ends`` are those of running pods, ``times`` how long units run, by name."""
    state = cluster.state
    state.advance(NOW)
    units = find_pending(state)
    running = [
        Ending(name, (cluster.pod(name),), end, level) for name, (end, level) in ends.items()
    ]

    def expected_time(unit: Unit) -> RunTime:
        expected, level = times.get(unit.pods[0].name.split("-")[0], (None, Knowledge.NONE))
        return RunTime(level, expected, expected)

    state.refresh()
    cycle = state.open_cycle(lambda: units)
    used = cycle.used.copy()
    forecasts = Outlook(cycle, SCORING, expected_time).look(units, running)
    assert (cycle.used == used).all()
    assert cycle.now == NOW
    names = {unit.key: unit.pods[0].name.split("-")[0] for unit in units}
    return {names[key]: forecast for key, forecast in forecasts.items()}


def make_busy(*busy: str) -> FakeCluster:
    """Return a cluster of one node with 8 GPUs for each of these pods."""
    cluster = make_cluster()
    for at, name in enumerate(busy):
        cluster.nodes(make_node(f"n{at}").gpu(8).cpu(8000))
        cluster.pods(make_pod(name).gpu(8).running(f"n{at}"))
    return cluster


def test_a_gang_starts_when_the_last_of_what_it_needs_has_ended() -> None:
    cluster = make_busy("r1", "r2", "r3").gang("g", 2)
    ends = {
        "r1": (1300.0, Knowledge.DECLARED),
        "r2": (1600.0, Knowledge.STATED),
        "r3": (1900.0, Knowledge.DECLARED),
    }
    g = look(cluster, ends, {})["g"]
    assert (g.start, g.level) == (1600.0, Knowledge.STATED)
    assert [ending.name for ending in g.waits_for] == ["r1", "r2"]


def test_what_starts_in_the_future_ends_there_too() -> None:
    cluster = make_busy("r")
    cluster.pods(*(make_pod(name).gpu(8).created(at) for at, name in enumerate("abc")))
    times = {"a": (100, Knowledge.DECLARED), "b": (200, Knowledge.HISTORY)}
    seen = look(cluster, {"r": (1100.0, Knowledge.DECLARED)}, times)
    assert [(seen[name].start, seen[name].level) for name in "abc"] == [
        (1100, Knowledge.DECLARED),
        (1200, Knowledge.DECLARED),
        (1400.0, Knowledge.HISTORY),
    ]


def test_what_fits_now_waits_for_nothing() -> None:
    cluster = make_busy("r")
    cluster.nodes(make_node("free").gpu(8).cpu(8000)).pods(make_pod("a").gpu(1))
    a = look(cluster, {"r": (None, Knowledge.NONE)}, {})["a"]
    assert (a.start, a.waits_for) == (NOW, ())


def test_without_known_ends_nobody_knows_and_what_is_lacking_is_said() -> None:
    cluster = make_busy("r").pods(make_pod("a").gpu(8))
    a = look(cluster, {"r": (None, Knowledge.NONE)}, {})["a"]
    assert (a.start, a.level, a.never) == (None, Knowledge.NONE, None)
    assert a.refusal is not None
    assert "1 more empty node" in a.refusal.text()


def test_what_fits_no_empty_cluster_never_starts() -> None:
    cluster = make_busy("r").gang("g", 2)
    g = look(cluster, {"r": (1100.0, Knowledge.DECLARED)}, {})["g"]
    assert g.start is None
    assert g.never is not None


def test_what_starts_before_and_never_ends_is_no_reason_that_something_never_fits() -> None:
    cluster = make_busy("r")
    cluster.nodes(make_node("free").gpu(8).cpu(8000)).pods(make_pod("a").gpu(4).priority(1))
    seen = look(cluster.gang("g", 2), {"r": (1100.0, Knowledge.DECLARED)}, {})
    assert seen["a"].start == NOW
    assert (seen["g"].start, seen["g"].never) == (None, None)


SIZES = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=5)


def ask_for_sizes(sizes: list[tuple[int, int]]) -> Mapping[str, Forecast]:
    """Look ahead for gangs of so many pods with so many GPUs, where nobody knows any end."""
    names = [f"r{at}" for at in range(12)]
    cluster = make_busy(*names).quotas(
        make_quota("q", min={"nvidia.com/gpu": 6}, max={"nvidia.com/gpu": 12})
    )
    for at, (pods, gpus) in enumerate(sizes):
        cluster.pod_groups(make_pod_group(f"default/g{at}", pods))
        for number in range(pods):
            pod = make_pod(f"g{at}-{number}").gang(f"default/g{at}").gpu(gpus)
            cluster.pods(pod.quota("q") if at % 2 else pod)
    return look(cluster, dict.fromkeys(names, (None, Knowledge.NONE)), {})


@settings(max_examples=25)
@given(SIZES)
def test_who_never_starts_is_the_same_on_few_empty_nodes_as_on_all(
    sizes: list[tuple[int, int]],
) -> None:
    few = ask_for_sizes(sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outlook, "_find_rows", lambda *_: None)
        assert ask_for_sizes(sizes) == few


def test_few_nodes_are_emptied_to_see_that_something_would_start() -> None:
    removed: list[int] = []
    cluster = make_busy(*(f"r{at}" for at in range(40))).pods(make_pod("a").gpu(8))
    with pytest.MonkeyPatch.context() as patch:
        remove = Cycle.remove

        def count(cycle: Cycle, pods: Iterable[Pod]) -> Removed:
            pods = list(pods)
            removed.append(len(pods))
            return remove(cycle, pods)

        patch.setattr(Cycle, "remove", count)
        seen = look(cluster, {f"r{at}": (None, Knowledge.NONE) for at in range(40)}, {})
    assert (seen["a"].never, removed) == (None, [1])
