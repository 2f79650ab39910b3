"""Series for people: what waits in each quota, and how the GPUs of each model are used."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster, make_unit
from tests.device.test_plugin import gpu_cluster, part, settle, whole
from tests.support.laws import examples

from koord.answers.fragmentation import count_by_model, view_fragmentation
from koord.core.engine.queue import Blocked, Queue
from koord.core.model.reasons import PinnedNodeUnfit
from koord.runtime import team_series
from koord.runtime.team_series import OTHERS, TeamFigures, watch_teams

NOW = 10_000.0


def read(figures: TeamFigures, name: str) -> dict:
    (series,) = [each for each in watch_teams(figures) if each.name == name]
    return dict(series.read())


def waiting_cluster() -> TeamFigures:
    cluster = make_cluster()
    cluster.quotas(make_quota("a", max={GPU: 8}), make_quota("b", max={GPU: 8}))
    cluster.pod_groups(make_pod_group("default/g", 2))
    cluster.pods(make_pod("g-0").gang("default/g").quota("b").gpu(4).created(9_990.0))
    queue = cluster.absorb()
    for name, gpus, created in (("p", 2, 9_000.0), ("q", 1, 8_000.0)):
        pod = make_pod(name).quota("a").gpu(gpus).created(created).build()
        cluster.pods(pod)
        reason = PinnedNodeUnfit(pod.key, "n1")
        queue.blocked[pod.uid] = Blocked(make_unit(pod.uid, [pod]), (pod,), reason)
    return TeamFigures(cluster.state, queue, lambda: NOW)


def test_what_waits_is_counted_by_quota_and_class():
    figures = waiting_cluster()
    broken, incomplete = ("a", "Misconfigured"), ("b", "Incomplete")
    assert read(figures, "koord_waiting_units") == {broken: 2, incomplete: 1}
    assert read(figures, "koord_waiting_gpus") == {broken: 3, incomplete: 4}
    assert read(figures, "koord_longest_wait_seconds") == {broken: 2_000.0, incomplete: 10.0}


def test_of_many_quotas_only_the_largest_have_series(monkeypatch):
    monkeypatch.setattr(team_series, "MOST_QUOTAS", 1)
    assert set(read(waiting_cluster(), "koord_waiting_units")) == {
        ("a", "Misconfigured"),
        (OTHERS, "Incomplete"),
    }


def test_counts_are_served_again_for_a_while():
    now = [NOW]
    figures = waiting_cluster()
    figures.clock = lambda: now[0]
    assert read(figures, "koord_waiting_units")
    figures.queue.blocked.clear()
    figures.queue.waiting.clear()
    assert read(figures, "koord_waiting_units")
    now[0] += 6
    assert read(figures, "koord_waiting_units") == {}
    now[0] -= 3600
    assert read(figures, "koord_waiting_units") == {}, "a clock that runs back keeps nothing"


def test_gpus_of_nodes_with_devices():
    cluster = gpu_cluster(2)
    settle(cluster, whole("a", 1))
    settle(cluster, part("b", 30))
    (gpus,) = count_by_model(cluster.state)
    (exact,) = view_fragmentation(cluster.state)
    assert (gpus.used, gpus.free, gpus.broken) == (2, exact.free, exact.broken)
    figures = TeamFigures(cluster.state, Queue(), lambda: NOW)
    states = read(figures, "koord_gpus")
    assert states[gpus.model, "used"] == 2
    assert sum(states.values()) == exact.total
    assert read(figures, "koord_gpus_apart") == {
        (gpus.model, str(size.size)): size.lost for size in exact.sizes
    }


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), max_size=6))
@settings(max_examples=examples(50), deadline=None)
def test_each_gpu_has_one_state(nodes):
    cluster = make_cluster()
    for at, (gpus, used) in enumerate(nodes):
        node = make_node(f"n{at}").gpu(gpus)
        cluster.nodes(node)
        if used:
            cluster.pods(make_pod(f"p{at}").gpu(min(used, gpus)).running(f"n{at}"))
    cluster.state.refresh()
    exact = {each.model: each for each in view_fragmentation(cluster.state)}
    for gpus in count_by_model(cluster.state):
        total = gpus.used + gpus.free + gpus.broken + gpus.down
        assert total == exact[gpus.model].total
        assert (gpus.used, gpus.free) == (exact[gpus.model].used, exact[gpus.model].free)


@pytest.mark.parametrize("name", ["koord_gpus", "koord_waiting_units"])
def test_an_empty_cluster_has_no_samples(name):
    assert read(TeamFigures(make_cluster().state, Queue(), lambda: NOW), name) == {}
