"""Lists in pages: nothing is lost or shown twice, and what is wrong is named."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.see.paging import ExpiredPage, InvalidQuery, ListForm, Row, make_page, parse_query

FORM = ListForm(
    key=lambda row: row["name"],
    sorts={"name": lambda row: row["name"], "gpus": lambda row: row["gpus"]},
    filters={"kind": lambda row: (row["kind"],)},
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"name": st.text(max_size=3), "gpus": st.integers(0, 3), "kind": st.sampled_from("ab")}
    ),
    max_size=20,
    unique_by=lambda row: row["name"],
)


def read_all(rows: list[Row], params: dict[str, str]) -> list[Row]:
    seen: list[Row] = []
    token = ""
    while True:
        more = {"continue": token} if token else {}
        page = make_page(rows, parse_query({**params, **more}, FORM, "i"), FORM, "i")
        seen += page["items"]
        assert page["total"] == len(seen) + page["remaining"]
        token = page["continue"]
        if not token:
            return seen


@given(ROWS, st.integers(1, 7), st.sampled_from(["name", "-name", "gpus", "-gpus"]))
def test_pages_partition_the_list(rows: list[dict[str, Any]], limit: int, sort: str) -> None:
    seen = read_all(rows, {"limit": str(limit), "sort": sort})
    assert sorted(row["name"] for row in seen) == sorted(row["name"] for row in rows)
    order = FORM.sorts[sort.removeprefix("-")]
    assert [order(row) for row in seen] == sorted(map(order, rows), reverse=sort.startswith("-"))


@given(ROWS, st.integers(1, 5), st.data())
def test_rows_that_stay_are_not_lost_when_others_come_and_go(
    rows: list[dict[str, Any]], limit: int, data: st.DataObject
) -> None:
    page = make_page(rows, parse_query({"limit": str(limit)}, FORM, "i"), FORM, "i")
    leave = data.draw(st.sets(st.sampled_from([row["name"] for row in rows] or [""])))
    now = [row for row in rows if row["name"] not in leave]
    if not page["continue"]:
        return
    params = {"limit": "1000", "continue": page["continue"]}
    more = make_page(now, parse_query(params, FORM, "i"), FORM, "i")
    shown = {row["name"] for row in [*page["items"], *more["items"]]}
    assert {row["name"] for row in now} <= shown


def test_filters_search_and_fields() -> None:
    rows = [{"name": f"n{at}", "gpus": at, "kind": "ab"[at % 2]} for at in range(4)]
    assert [row["name"] for row in read_all(rows, {"kind": "b"})] == ["n1", "n3"]
    assert [row["name"] for row in read_all(rows, {"search": "2"})] == ["n2"]
    assert read_all(rows, {"fields": "gpus", "search": "n3"}) == [{"gpus": 3}]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"limit": "٣"}, "limit"),
        ({"sort": "age"}, "sort"),
        ({"search": "x" * 65}, "search"),
        ({"colour": "red"}, "colour"),
        ({"continue": "%%%"}, "continue"),
        ({"continue": "WzEsMl0="}, "continue"),
    ],
)
def test_what_is_wrong_is_named(params: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidQuery, match=f"^{text}: "):
        parse_query(params, FORM, "i")


def test_unknown_fields_are_named() -> None:
    with pytest.raises(InvalidQuery, match=r"^fields: 'age' is none of name, gpus, kind"):
        read_all([{"name": "a", "gpus": 0, "kind": "a"}], {"fields": "age"})


@pytest.mark.parametrize(("change", "instance"), [({"kind": "a"}, "i"), ({}, "other")])
def test_a_list_goes_on_as_it_was_begun(change: dict[str, str], instance: str) -> None:
    rows = [{"name": f"n{at}", "gpus": at, "kind": "a"} for at in range(4)]
    page = make_page(rows, parse_query({"limit": "2"}, FORM, "i"), FORM, "i")
    with pytest.raises(ExpiredPage):
        parse_query({"limit": "2", "continue": page["continue"], **change}, FORM, instance)


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFG0123456789-_=", max_size=60))
def test_no_token_makes_it_fail(token: str) -> None:
    with contextlib.suppress(InvalidQuery, ExpiredPage):
        parse_query({"continue": token}, FORM, "i")


def test_rows_are_limited_by_time() -> None:
    form = ListForm(key=lambda row: row["at"], sorts={"at": lambda row: row["at"]}, time="at")
    rows = [{"at": f"2026-11-25T03:0{minute}:00.000Z"} for minute in range(5)]
    params = {"from": "2026-11-25T03:01:00Z", "to": "2026-11-25T03:03:00Z"}
    page = make_page(rows, parse_query(params, form, "i"), form, "i")
    assert [row["at"][14:16] for row in page["items"]] == ["01", "02"]
    for wrong in ("x", "1", "0001-01-01T00:00:00Z"):
        with pytest.raises(InvalidQuery, match="from: "):
            parse_query({"from": wrong}, form, "i")
