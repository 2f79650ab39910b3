"""Expressions say what the library's own interpreter says of any document."""

from typing import Any

import jmespath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jmespath.functions import Functions
from tests.owners.test_input import JSON
from tests.support.laws import examples

from koord.api.expressions import FUNCTIONS, Expression, ExpressionError
from koord.api.owner_kinds import load_owner_kinds

OF_KINDS = sorted(
    {
        text
        for kind in load_owner_kinds()
        if kind.gang is not None
        for text in kind.gang.model_dump().values()
        if text is not None
    }
)
OF_ALL_FORMS = (
    "@", "a", "a.b", "a.b.c", "@.a", "a[0]", "a[-1]", "a[5]", "a[1:]", "a[::-1]", "a[]", "a[].b",
    "a[*]", "a[*].b", "*", "*.b", "a.*.b", "a[?b]", "a[?b == c]", "a[?b > `1`].c", "a[?b].c[]",
    "[a, b]", "{x: a, y: b.c}", "a[].{x: b, y: c}", "a || b", "a && b", "!a", "!(a && b)", "(a)",
    "a | b", "a[] | [0]", "`1`", "'x'", "`[1, 2]`", "a == b", "a != b", "a < b", "a >= 'x'",
    "not_null(a, b)", "length(a)", "sort_by(a, &b)", "map(&b, a)", "max_by(a, &b.c)", "keys(@)",
    "type(a)", "a == `0`", "a == `true`", "entries(a)[].value.b", "smallest([a, b])", "&a",
)  # fmt: skip
NAMES = st.sampled_from("abc")
DOCUMENTS = st.recursive(
    JSON | st.sampled_from([0, 1, 2, True, False, "", "x", [], {}]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


def ask_library(text: str, document: Any) -> Any:
    return jmespath.search(text, document, jmespath.Options(custom_functions=FUNCTIONS))


@pytest.mark.parametrize("text", OF_ALL_FORMS)
@given(document=DOCUMENTS)
@settings(max_examples=examples(60), deadline=None)
def test_every_form_says_what_the_library_says(text: str, document: Any) -> None:
    expression = Expression(text)
    try:
        expected = ask_library(text, document)
    except Exception:  # noqa: BLE001 - whatever its functions meet
        with pytest.raises(ExpressionError):
            expression.evaluate(document)
        return
    found = expression.evaluate(document)
    if text != "&a":
        assert repr(found) == repr(expected)


def test_every_part_of_the_language_is_tried() -> None:
    def types_of(node: Any) -> set[str]:
        children = [child for child in node["children"] if isinstance(child, dict)]
        return {node["type"]}.union(*map(types_of, children))

    tried = set().union(*(types_of(jmespath.compile(text).parsed) for text in OF_ALL_FORMS))
    used = set().union(*(types_of(jmespath.compile(text).parsed) for text in OF_KINDS))
    assert used <= tried
    assert len(tried) >= 20


def test_a_function_that_does_not_exist_is_refused_before_it_is_called() -> None:
    assert "hash" not in Functions.FUNCTION_TABLE
    with pytest.raises(ExpressionError, match=r"Unknown function: hash\(\)"):
        Expression("a[?hash(b)]")


def test_an_expression_on_each_entry_of_a_long_list_counts_for_each() -> None:
    document = {"a": [{"b": at} for at in range(9000)]}
    assert len(Expression("a[].b").evaluate(document)) == 9000
    for text in ("a[].[b, b]", "a[?b == b].b", "sort_by(a, &[b, b][0])", "map(&[b, b], a)"):
        with pytest.raises(ExpressionError, match="takes more than 10000 steps"):
            Expression(text).evaluate(document)
