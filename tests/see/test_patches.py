"""Of a large answer a stream tells what changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cluster import make_cluster
from tests.see.test_app import HERE
from tests.support.laws import examples

from koord.answers.reading import Reading
from koord.see.patches import find_patch
from koord.see.snapshots import Snapshot
from koord.see.topics import parse_topic

MANY = 120


def apply(value: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    lists = {
        name: [numbers.get(str(at), item) for at, item in enumerate(value[name])]
        for name, numbers in patch["items"].items()
    }
    return {**value, **patch["fields"], **lists}


@settings(max_examples=examples(50), deadline=None)
@given(
    st.sets(st.integers(0, MANY - 1)),
    st.sampled_from(["ab", "abc"]),
    st.sampled_from([MANY, MANY + 1, 3]),
)
def test_a_patch_turns_one_value_into_the_other(
    changed: set[int], letters: str, count: int
) -> None:
    before = {"nodes": [{"free": at} for at in range(MANY)], "letters": "ab"}
    nodes = [{"free": -1 if at in changed else at} for at in range(count)]
    after = {"nodes": nodes, "letters": letters}
    patch = find_patch(before, after)
    if patch is not None:
        assert apply(before, patch) == after
        assert len(patch["items"]["nodes"]) == len(changed)
    assert (patch is None) == (count != MANY or not changed or len(changed) > MANY / 2)


@pytest.mark.parametrize("pair", [(None, {}), ({"a": 1}, {"a": 2}), ({"a": []}, {"b": []}), (1, 2)])
def test_what_is_small_is_told_as_a_whole(pair: tuple[Any, Any]) -> None:
    assert find_patch(*pair) is None


def test_of_the_map_the_nodes_that_changed_are_told() -> None:
    cluster = make_cluster(MANY).pods(make_pod("runs").gpu(8).running("n0"))
    topic = parse_topic("map", "i")
    first = topic.hello(Snapshot(Reading(cluster.state), HERE, 1, 0.0))["value"]
    cluster.pods(make_pod("more").gpu(2).running("n7"))
    changes = topic.changes(Snapshot(Reading(cluster.state), HERE, 2, 1.0))
    assert changes is not None
    assert [len(items) for items in changes["items"].values()] == [1]
    fresh = parse_topic("map", "i").hello(Snapshot(Reading(cluster.state), HERE, 2, 1.0))
    assert apply(first, changes) == fresh["value"]
