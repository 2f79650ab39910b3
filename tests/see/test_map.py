"""The map of GPUs: every GPU is one cell, and no name is told that is not to be seen."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_pod, make_quota
from tests.cluster import make_cluster
from tests.see.scene import make_scene

from koord.answers.encoding import encode
from koord.answers.fragmentation import NodeGpus
from koord.answers.gpu_map import (
    DOWN,
    FREE,
    LETTERS,
    MOST_CELLS,
    OTHERS,
    STRANDED,
    make_cells,
    view_map,
)
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.redaction import EVERYTHING, Sight
from koord.see.route import Ask
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot

NOW = 1_790_000_000.0
FEW = st.integers(0, 12)


def test_cells_of_a_scene() -> None:
    gpu_map = view_map(make_scene(NOW).state, EVERYTHING)
    cells = {node.node: node.quotas for node in gpu_map.nodes}
    letters = dict(zip(gpu_map.quotas, gpu_map.letters, strict=False))
    assert cells["gpu-00"] == letters["team-a"] * 8
    assert cells["gpu-05"] == letters["team-c"] * 3 + FREE * 5
    assert cells["gpu-11"] == STRANDED * 8
    assert [(each.name, each.layers) for each in gpu_map.topologies] == [
        ("default", ("Block", "Rack"))
    ]
    assert {node.node: node.domains for node in gpu_map.nodes}["gpu-05"] == ("b0/r1",)


def test_holders_keep_their_letters_when_another_one_has_more() -> None:
    cluster = make_cluster(4, gpus=8).quotas(*(make_quota(name) for name in "abc"))
    for at, name in enumerate("abc"):
        cluster.pods(make_pod(name).gpu(4).quota(name).running(f"n{at}"))
    before = view_map(cluster.state, EVERYTHING)
    cluster.pods(make_pod("more").gpu(8).quota("c").running("n3"))
    after = view_map(cluster.state, EVERYTHING)
    assert before.quotas == after.quotas == ("a", "b", "c")
    changed = [new.node for old, new in zip(before.nodes, after.nodes, strict=True) if old != new]
    assert changed == ["n3"]


def test_more_holders_than_letters_are_others() -> None:
    count = len(LETTERS) + 5
    cluster = make_cluster(count, gpus=1)
    for at in range(count):
        cluster.quotas(make_quota(f"q{at:03}"))
        cluster.pods(make_pod(f"p{at}").gpu(1).quota(f"q{at:03}").running(f"n{at}"))
    gpu_map = view_map(cluster.state, EVERYTHING)
    assert len(gpu_map.quotas) == len(LETTERS)
    assert sum(node.quotas == OTHERS for node in gpu_map.nodes) == 5


def test_names_that_are_not_to_be_seen_are_not_in_it() -> None:
    text = json.dumps(encode(view_map(make_scene(NOW).state, Sight(frozenset(), quotas=False))))
    for name in ("default/", "team-a", "team-c", "bert"):
        assert name not in text
    hidden = view_map(make_scene(NOW).state, Sight(frozenset(), quotas=False))
    assert (hidden.tenants, hidden.quotas) == ((), ())
    assert hidden.nodes[0].tenants == OTHERS * 8


@given(
    used=FEW,
    held=FEW,
    free=FEW,
    stranded=FEW,
    broken=FEW,
    letters=st.dictionaries(st.sampled_from("abcd"), FEW),
    is_down=st.booleans(),
)
def test_every_gpu_is_one_cell(
    *,
    used: int,
    held: int,
    free: int,
    stranded: int,
    broken: int,
    letters: dict[str, int],
    is_down: bool,
) -> None:
    gpus = NodeGpus("n", "m", used, held, free, broken=broken, stranded=stranded, is_down=is_down)
    cells = make_cells(gpus, letters)
    assert len(cells) == min(gpus.total, MOST_CELLS)
    if is_down:
        assert set(cells) <= {DOWN}
    elif gpus.total <= MOST_CELLS:
        assert cells.count(FREE) == free
        assert sum(cells.count(letter) for letter in letters) <= used


def test_the_route_writes_nodes_as_every_answer_is_written() -> None:
    """It does so by itself: there are thousands of them."""
    (route,) = (route for route in ROUTES if route.answer == "Map")
    state = make_scene(NOW).state
    snapshot = Snapshot(Reading(state), Target(TargetKind.POD, "default", ""), 1, NOW)
    written = json.dumps(route.compute(snapshot, Ask()))
    assert json.loads(written) == json.loads(json.dumps(encode(view_map(state, EVERYTHING))))
