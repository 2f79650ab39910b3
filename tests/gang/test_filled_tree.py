"""Which sub-groups are complete, counted in one pass, as their definition says."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.gang.test_sub_group_members import A, make_gang
from tests.support.laws import examples

from koord.api.gang import UPSTREAM_DEFAULTS, parse_pod_gang
from koord.api.keys import gang as keys
from koord.api.keys import operators
from koord.core.gang.sub_group_members import find_missing
from koord.core.model import gangs as gang_model
from koord.core.model.gangs import ROOT, FilledTree, SubGroup, SubGroupTree, fill
from koord.kube.translate.gangs import make_sub_groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from koord.core.model.gangs import TreeIndex

NAMES = "abcdef"


@st.composite
def trees(draw: st.DrawFn) -> SubGroupTree:
    """Draw a small tree; every sub-group may be below any that comes before it."""
    groups = [
        SubGroup(
            name,
            draw(st.integers(0, 3)),
            parent=draw(st.sampled_from([ROOT, *NAMES[:at]])),
            min_sub_groups=draw(st.sampled_from([None, 0, 1, 2])),
        )
        for at, name in enumerate(NAMES[: draw(st.integers(0, 6))])
    ]
    return SubGroupTree(SubGroup(ROOT, draw(st.integers(0, 4))), tuple(groups))


def find_short(tree: SubGroupTree, members: Mapping[str, int], name: str) -> tuple[SubGroup, ...]:
    """Say it as the definition does, without remembering anything."""
    group, below = tree.by_name[name], tree.below[name]
    short = [find_short(tree, members, one.name) for one in below]
    least = len(below) if group.min_sub_groups is None else group.min_sub_groups
    wanted = min(least, len(below))  # of more than there are, all
    if sum(not one for one in short) < wanted:
        return tuple(missing for one in short for missing in one)
    return (group,) if count_useful(tree, members, name) < group.min_member else ()


def count_useful(tree: SubGroupTree, members: Mapping[str, int], name: str) -> int:
    complete = (one for one in tree.below[name] if not find_short(tree, members, one.name))
    return members[name] + sum(count_useful(tree, members, one.name) for one in complete)


@settings(max_examples=examples(40))
@given(trees(), st.dictionaries(st.sampled_from(["", *NAMES]), st.integers(1, 3)))
def test_one_pass_says_what_the_definition_says(tree: SubGroupTree, drawn: dict[str, int]) -> None:
    members = Counter({name: count for name, count in drawn.items() if name in tree.by_name})
    filled = fill(tree, members)
    for name in tree.by_name:
        assert filled.find_short(name) == find_short(tree, members, name)
        assert filled.count_useful(name) == count_useful(tree, members, name)
        assert filled.is_short(name) == bool(filled.find_short(name))


def test_a_large_tree_is_counted_once_for_all_that_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand sub-groups must not be counted again for each of ten questions."""
    made: list[object] = []

    class Counted(FilledTree):
        def __init__(self, tree: SubGroupTree, members: Counter[str]) -> None:
            made.append(members)
            super().__init__(tree, members)

    indexed: list[TreeIndex] = []

    class Indexed(gang_model.TreeIndex):
        def __init__(self, tree: SubGroupTree) -> None:
            indexed.append(self)
            super().__init__(tree)

    monkeypatch.setattr(gang_model, "FilledTree", Counted)
    monkeypatch.setattr(gang_model, "TreeIndex", Indexed)
    cluster = make_gang([SubGroup(f"g{at}") for at in range(1024)], 1, least=None)
    cluster.pods(make_pod("a-0").gang(A).gpu(8))
    (unit,) = cluster.take()
    assert len(unit.pods) == 1
    assert find_missing(cluster.state.gangs, A) == ()
    assert len(made) <= 4
    assert len(indexed) <= 2


def test_only_sub_groups_with_members_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of gangs with a thousand sub-groups each, of which few have members, are quick."""
    counted: list[str] = []
    add = FilledTree._add

    def count(filled: FilledTree, sub_group: SubGroup) -> None:
        counted.append(sub_group.name)
        add(filled, sub_group)

    monkeypatch.setattr(FilledTree, "_add", count)
    chain = [SubGroup("deep", parent="g0"), SubGroup("deeper", 2, parent="deep")]
    tree = SubGroupTree(SubGroup(ROOT), (*(SubGroup(f"g{at}", 1) for at in range(1000)), *chain))
    filled = FilledTree(tree, Counter({"deeper": 2, "g7": 1}))
    assert sorted(counted) == ["", "deep", "deeper", "g0", "g7"]
    assert not any(filled.is_short(name) for name in ("deep", "deeper", "g0", "g7"))
    assert len(filled.find_short(ROOT)) == 998


def test_equal_trees_are_one_object() -> None:
    """Pods repeat the sub-groups of their gang: a tree may take half a megabyte."""
    text = json.dumps({"groups": [{"name": f"g{at}"} for at in range(10)]})
    trees = []
    for name in "ab":
        annotations = {keys.NAME: name, keys.MIN_AVAILABLE: "1", operators.SUB_GROUPS: text}
        gang = parse_pod_gang("default", {}, annotations, UPSTREAM_DEFAULTS, "")
        assert gang is not None
        assert gang.settings is not None
        trees.append(make_sub_groups(gang.settings))
    assert trees[0] is not None
    assert trees[0] is trees[1]
