"""Selectors, evaluated per object and as arrays: both follow the rules of the API."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.laws import examples

from koord.core.engine.columns import Columns
from koord.core.model.selectors import LabelSelector, Requirement, SelectorOperator, is_selected

LABELS = {"app": "web", "size": "10", "odd": "1_0", "huge": "9223372036854775808"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        ((), True),
        ((Requirement("app", SelectorOperator.IN, ("db", "web")),), True),
        ((Requirement("app", SelectorOperator.IN, ("db",)),), False),
        ((Requirement("none", SelectorOperator.IN, ("db",)),), False),
        ((Requirement("app", SelectorOperator.NOT_IN, ("web",)),), False),
        ((Requirement("none", SelectorOperator.NOT_IN, ("web",)),), True),
        ((Requirement("app", SelectorOperator.EXISTS),), True),
        ((Requirement("none", SelectorOperator.EXISTS),), False),
        ((Requirement("app", SelectorOperator.DOES_NOT_EXIST),), False),
        ((Requirement("none", SelectorOperator.DOES_NOT_EXIST),), True),
        ((Requirement("size", SelectorOperator.GT, ("9",)),), True),
        ((Requirement("size", SelectorOperator.GT, ("10",)),), False),
        ((Requirement("size", SelectorOperator.LT, ("+11",)),), True),
        ((Requirement("size", SelectorOperator.LT, ("11", "12")),), False),
        ((Requirement("size", SelectorOperator.LT, ("1_1",)),), False),
        ((Requirement("none", SelectorOperator.LT, ("11",)),), False),
        ((Requirement("odd", SelectorOperator.GT, ("1",)),), False),
        ((Requirement("huge", SelectorOperator.GT, ("1",)),), False),
        (
            (
                Requirement("app", SelectorOperator.EXISTS),
                Requirement("app", SelectorOperator.IN, ("db",)),
            ),
            False,
        ),
    ],
)
def test_selectors_follow_the_rules_of_the_api(selector: LabelSelector, *, expected: bool) -> None:
    columns = Columns(2)
    columns.write(1, LABELS)
    assert is_selected(LABELS, selector) is expected
    assert bool(columns.selected(selector)[1]) is expected


keys = st.sampled_from("abc")
values = st.sampled_from(["", "1", "2", "x"])
labels_drawn = st.dictionaries(keys, values)
requirements = st.builds(
    Requirement, keys, st.sampled_from(SelectorOperator), st.lists(values, max_size=2).map(tuple)
)
selectors = st.none() | st.lists(requirements, max_size=3).map(tuple)


@settings(max_examples=examples(40))
@given(st.lists(labels_drawn, min_size=1, max_size=6), selectors, selectors, labels_drawn)
def test_arrays_and_plain_form_agree_before_and_after_a_row_changes(
    rows: list[dict[str, str]],
    first: LabelSelector,
    second: LabelSelector,
    changed: dict[str, str],
) -> None:
    columns = Columns(len(rows))
    for row, labels in enumerate(rows):
        columns.write(row, labels)
    for selector in (first, second):
        found = columns.selected(selector).tolist()
        assert found == [is_selected(labels, selector) for labels in rows]
    columns.clear(0)
    columns.write(0, changed)
    columns.grow(2 * len(rows))
    found = columns.selected(first).tolist()
    assert found[0] is is_selected(changed, first)
    assert found[-1] is is_selected({}, first)
