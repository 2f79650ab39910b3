"""With ``hideOthers`` a tenant learns neither positions nor exact amounts of others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group
from tests.cli.readings import make_reading
from tests.see.reviewer import Reviewer
from tests.see.test_non_interference import BODIES, HERE, OWN, PARTS

from koord.answers.encoding import encode
from koord.answers.hidden_amounts import hide_in_usage, round_down
from koord.answers.redaction import EVERYTHING, Sight
from koord.answers.usage_sight import hide_others
from koord.core.usage.book import BookKey, BookSum, UsageBook
from koord.core.usage.segments import Window
from koord.runtime.reviews import AccessReviews, TokenHolder
from koord.see.paging import InvalidQuery
from koord.see.rights import UserRights
from koord.see.route import Ask, NothingThere, Route, head_for, wrap
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot

HIDING = Sight(frozenset({"team-a"}), quotas=False, nodes=False, reservations=False, amounts=False)


def make_snapshot(sizes: tuple[int, ...], sight: Sight) -> Snapshot:
    """Make 13 full nodes; the asker's gang waits behind pods of others that ask for so much."""
    objects = [make_node(f"n{at}").gpu(8).build() for at in range(13)]
    objects += [make_pod(f"team-b/run-{at}").gpu(8).running(f"n{at}").build() for at in range(13)]
    objects.append(make_pod_group("team-a/mine", min_member=2).build())
    objects += [make_pod(f"team-a/mine-{at}").gang("team-a/mine").gpu(8).build() for at in (0, 1)]
    objects += [
        make_pod(f"team-b/wait-{at}").gpu(gpus).priority(9).build() for at, gpus in enumerate(sizes)
    ]
    return Snapshot(replace(make_reading(*objects), sight=EVERYTHING), HERE, 1, 1.0).seen_with(
        sight
    )


def ask(route: Route, snapshot: Snapshot, params: dict[str, str] | None = None) -> str:
    names = PARTS.get(route.answer, {**OWN, "kind": "podgroup"})
    parts = {k: v for k, v in names.items() if f"{{{k}}}" in route.path}
    question = Ask(parts, BODIES.get(route.answer, {}), params or {})
    try:
        answer = route.answer_from(snapshot, question)
    except (NothingThere, InvalidQuery) as refusal:
        return str(refusal)
    document = wrap(head_for(route, snapshot, question, "i", 1.0), answer)
    return json.dumps(encode(document))


ROUTE = {route.answer: route for route in ROUTES}


def test_the_queue_has_the_own_units_without_a_position_and_one_digit_of_what_is_ahead() -> None:
    (row,) = json.loads(ask(ROUTE["Queue"], make_snapshot((8, 8, 8), HIDING)))["value"]
    assert row["names"] == ["team-a/mine"]
    assert (row["position"], row["gpus"], row["gpusAhead"]) == (None, 16, 20)
    rows = json.loads(ask(ROUTE["Queue"], make_snapshot((8, 8, 8), EVERYTHING)))["value"]
    assert (len(rows), rows[-1]["position"], rows[-1]["gpusAhead"]) == (4, 4, 24)


def test_sums_have_one_digit() -> None:
    snapshot = make_snapshot((8,), HIDING)
    overview = json.loads(ask(ROUTE["Overview"], snapshot))
    assert overview["value"]["gpus"]["total"] == 104
    assert overview["value"]["gpus"]["used"] == 100
    assert sum(overview["value"]["waiting"].values()) == 1
    assert "amounts of others" in {gap["missing"] for gap in overview["gaps"]}
    (model,) = json.loads(ask(ROUTE["Fragmentation"], snapshot))["value"]["models"]
    assert (model["total"], model["used"]) == (104, 100)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.answer)
def test_no_answer_tells_more_than_one_digit(route: Route) -> None:
    """24 GPUs of others ahead, and 21, are the same answer."""
    told = ask(route, make_snapshot((8, 8, 8), HIDING))
    assert told == ask(route, make_snapshot((8, 8, 5), HIDING))


def test_a_report_of_waits_is_of_one_namespace() -> None:
    assert "name one of yours" in ask(ROUTE["AuditReport"], make_snapshot((), HIDING))
    told = ask(ROUTE["AuditReport"], make_snapshot((), HIDING), {"namespace": "team-a"})
    assert json.loads(told)["value"]["namespace"] == "team-a"


def test_of_usage_by_others_one_digit_is_told() -> None:
    keys = [BookKey("q", space, "", "m", "") for space in ("team-a", "team-b")]
    book = UsageBook(Window(0, 1000), sums={key: BookSum(4711, 4711) for key in keys})
    seen = hide_in_usage(hide_others(book, HIDING), HIDING)
    assert sorted(amount.held for amount in seen.sums.values()) == [4000, 4711]


@given(st.integers(0, 10**18))
def test_an_amount_is_rounded_down_to_one_digit(amount: int) -> None:
    rounded = round_down(amount)
    assert rounded <= amount
    assert str(rounded).rstrip("0") in {"", str(amount)[0]}
    assert len(str(rounded)) == len(str(amount))


@pytest.mark.parametrize(("rights", "amounts"), [("team-a", False), ("", True)])
async def test_amounts_are_hidden_from_who_may_not_list_all_pods(
    rights: str, *, amounts: bool
) -> None:
    reviewer = Reviewer(rights={("ann", "pods", rights)})
    finder = UserRights(AccessReviews(reviewer), hides_amounts=True)  # type: ignore[arg-type]
    seen = await finder.find(TokenHolder("ann"), ["team-a", "team-b"])
    assert seen.sight.amounts == amounts
    assert not seen.sight.is_whole
