"""The index that finds the selectors of pods on nodes that select a new pod."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.model.constraints import PodLabels, PodSelector
from koord.core.model.selectors import Requirement, SelectorOperator, is_selected
from koord.core.plugins.pod_affinity import MOST_PLACES, SelectorIndex

NAMESPACES = {"a": {"team": "x"}, "b": {"team": "y"}, "c": {}}
KEYS, VALUES = st.sampled_from(["app", "job"]), st.sampled_from(["1", "2"])


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    operator = draw(st.sampled_from(list(SelectorOperator)))
    if operator in {SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST}:
        return Requirement(draw(KEYS), operator)
    most = 1 if operator in {SelectorOperator.GT, SelectorOperator.LT} else 2
    return Requirement(draw(KEYS), operator, tuple(draw(st.lists(VALUES, max_size=most))))


SELECTORS = st.none() | st.lists(requirements(), max_size=3).map(tuple)
TEAMS = st.sampled_from([None, (), (Requirement("team", SelectorOperator.IN, ("x",)),)])
NAMES = st.lists(st.sampled_from(list(NAMESPACES)), max_size=2).map(tuple)
PODS = st.builds(PodSelector, SELECTORS, NAMES, TEAMS)
PROFILES = st.builds(
    PodLabels, st.sampled_from(list(NAMESPACES)), st.dictionaries(KEYS, VALUES, max_size=2)
)


@given(st.lists(PODS, max_size=6), st.lists(PODS, max_size=6), PROFILES)
def test_index_finds_what_trying_all_finds(
    kept: list[PodSelector], removed: list[PodSelector], profile: PodLabels
) -> None:
    index = SelectorIndex()
    for one in (*kept, *removed):
        index.add(one)
    for one in removed:
        index.remove(one)
    expected = {
        one
        for one in kept
        if one.selects_namespace(profile.namespace, NAMESPACES[profile.namespace])
        and is_selected(profile.labels, one.selector)
    }
    assert set(index.selecting(profile, NAMESPACES)) == expected
    assert len(expected) <= index.count_candidates(profile) <= len(set(kept))


def need(key: str, operator: SelectorOperator, *values: str) -> Requirement:
    return Requirement(key, operator, values)


MANY = tuple(f"n{at}" for at in range(MOST_PLACES + 1))


@pytest.mark.parametrize(
    ("one", "count"),
    [
        (PodSelector((need("app", SelectorOperator.IN, "web"),), ("a",)), 1),
        (PodSelector((need("app", SelectorOperator.IN, "db"),), (), ()), 0),
        (PodSelector((need("app", SelectorOperator.IN, "web"),), ("b",)), 0),
        (PodSelector((need("job", SelectorOperator.EXISTS),), (), ()), 0),
        (PodSelector((need("job", SelectorOperator.GT, "1"),), (), ()), 0),
        (
            PodSelector(
                (need("job", SelectorOperator.NOT_IN, "1"), need("gpu", SelectorOperator.EXISTS)),
                (),
                (),
            ),
            0,
        ),
        (PodSelector((need("app", SelectorOperator.NOT_IN, "web"),), (), ()), 1),
        (PodSelector((need("app", SelectorOperator.IN, "web"),), MANY), 1),
    ],
)
def test_selectors_of_other_labels_and_namespaces_are_not_tried(
    one: PodSelector, count: int
) -> None:
    index = SelectorIndex()
    index.add(one)
    assert index.count_candidates(PodLabels("a", {"app": "web"})) == count
