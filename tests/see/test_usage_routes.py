"""Usage over HTTP: what the command says, by the rights of whoever asks."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod, make_quota
from tests.cluster import make_cluster
from tests.see.test_app import open_server
from tests.support.laws import examples
from tests.usage.books import make_book
from tests.usage.instants import between

from koord.answers.encoding import encode
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.redaction import EVERYTHING, Sight
from koord.answers.usage_report import make_report
from koord.answers.usage_sight import hide_others
from koord.core.usage.book import BookKey, BookSum, LossKey, OwnerKey, UsageBook
from koord.core.usage.periods import find_period
from koord.see.app import BASE
from koord.see.paging import InvalidQuery
from koord.see.route import Ask, NothingThere
from koord.see.routes import ROUTES
from koord.see.snapshots import OnDemand, Snapshot
from koord.store.errors import StoreUnusableError

if TYPE_CHECKING:
    from koord.core.usage.segments import Window

HERE = Target(TargetKind.POD, "default", "")
(ROUTE,) = (route for route in ROUTES if route.answer == "UsageReport")
NOON = between("12:00", "13:00").start / 1_000
TENANT = Sight(frozenset({"team-nlp"}), quotas=False, quota_names=frozenset({"research"}))


def kept(window: Window) -> UsageBook:
    return make_book(window)


def make_snapshot(on_demand: OnDemand | None, sight: Sight = EVERYTHING) -> Snapshot:
    cluster = make_cluster(2).quotas(make_quota("team", max={"nvidia.com/gpu": 9}))
    pod = make_pod("team-a/old").quota("team").gpu(4).created(NOON - 3_600).labels(who="ada")
    cluster.pods(pod.running("n0"))
    cluster.state.refresh()
    return Snapshot(Reading(cluster.state, sight=sight), HERE, 1, NOON, on_demand)


def ask(snapshot: Snapshot, **params: str):
    answer = ROUTE.answer_from(snapshot, Ask({}, {}, params))
    return answer.value, [gap.because for gap in answer.gaps]


def test_without_a_store_it_is_told_of_pods_that_exist_and_what_is_missing() -> None:
    on_demand = OnDemand(None, None, None, user_label="who")
    value, gaps = ask(make_snapshot(on_demand), month="2026-11")
    assert gaps == ["NotStored"]
    assert (value["hours"], value["to"]) == ("4.000", "2026-11-25T12:00:00Z")
    assert [(line["user"], line["hours"]) for line in value["users"]] == [("ada", "4.000")]


def test_with_a_store_it_is_the_report_of_the_command() -> None:
    on_demand = OnDemand(None, None, None, read_usage=kept)
    value, gaps = ask(make_snapshot(on_demand), month="2026-10", quota="research")
    window = find_period("2026-10").window
    assert (value, gaps) == (encode(make_report(make_book(window), "research")), [])
    assert value["from"] == "2026-10-01T00:00:00Z"


def test_a_store_that_cannot_be_read_is_a_gap() -> None:
    def fail(_: Window) -> UsageBook:
        raise StoreUnusableError("it is gone")

    value, gaps = ask(make_snapshot(OnDemand(None, None, None, read_usage=fail)))
    assert (value["held"], gaps) == (0, ["NotStored"])


@pytest.mark.parametrize(
    "params",
    [
        {"month": "2026-13"},
        {"month": "9999-12"},
        {"month": "0000-01"},
        {"month": "x" * 300},
        {"tz": "../../etc/passwd"},
        {"tz": "Nowhere"},
        {"tz": "a\0b"},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(params: dict[str, str]) -> None:
    with pytest.raises(InvalidQuery):
        ask(make_snapshot(None), **params)


async def test_it_is_asked_over_http_and_its_parameters_are_known() -> None:
    async with open_server() as client:
        status, document, _ = await client.get(f"{BASE}/usage?month=2026-11")
        assert (status, document["answer"]) == (200, "UsageReport")
        status, refusal, _ = await client.get(f"{BASE}/usage?months=2026-11")
        assert (status, refusal["error"]) == (400, "Invalid")


def test_a_tenant_sees_her_own_names_and_the_sums_of_all() -> None:
    snapshot = make_snapshot(OnDemand(None, None, None, read_usage=kept), TENANT)
    value, _ = ask(snapshot, month="2026-10")
    whole = encode(make_report(make_book(find_period("2026-10").window)))
    assert value["held"] == whole["held"]
    assert {line["namespace"] for line in value["namespaces"]} == {"team-nlp", None}
    assert {line["user"] for line in value["users"]} == {"ada", "alan", None}
    assert {line["quota"] for line in value["quotas"]} == {"research", None}
    assert sum(line["lost"] for line in value["losses"]) == sum(
        line["lost"] for line in whole["losses"]
    )
    for other in ("vision", "speech", "edgar", "grace", "asr", "org"):
        assert other not in json.dumps(value)
    with pytest.raises(NothingThere, match="or you may not see it"):
        ask(snapshot, quota="vision")
    with pytest.raises(NothingThere, match="or you may not see it"):
        ask(snapshot, quota="none-such")


NAMES = st.sampled_from(["own", "x1", "x2"])
BOOKS = st.lists(st.tuples(NAMES, NAMES, st.integers(1, 9)), max_size=6)


@settings(max_examples=examples(40))
@given(BOOKS, st.sampled_from([frozenset(), frozenset({"own"})]))
def test_names_of_others_change_nothing_and_more_rights_hide_nothing(
    parts: list[tuple[str, str, int]], quotas: frozenset[str]
) -> None:
    def report(rename: dict[str, str], sight: Sight):
        book = UsageBook(between("08:00", "09:00"), above={"own": rename["x1"], rename["x1"]: ""})
        for quota, namespace, held in ((rename[q], rename[n], held) for q, n, held in parts):
            book.add(BookKey(quota, namespace, f"u-{namespace}", "", ""), BookSum(held))
            book.owners[OwnerKey(quota, f"{namespace}/job", "")] += held
            loss = LossKey(quota, namespace, f"{namespace}/job", "Evicted", "AtMost", "")
            book.losses[loss._replace(by=f"{namespace}/by")] += held
        return encode(make_report(hide_others(book, sight)))

    same, other = {"own": "own"}, {"own": "own"}
    same |= {"x1": "secret1", "x2": "secret2"}
    other |= {"x1": "tecret1", "x2": "tecret2"}
    sight = Sight(frozenset({"own"}), quotas=False, quota_names=quotas)
    seen = report(same, sight)
    assert seen == report(other, sight)
    assert "secret" not in json.dumps(seen)
    whole = report(same, EVERYTHING)
    assert whole["held"] == seen["held"]
    for key, name in (("namespaces", "namespace"), ("users", "user"), ("owners", "owner")):
        of_all = Counter({line[name]: line["held"] for line in whole[key]})
        assert sum(line["held"] for line in seen[key]) == of_all.total()
        for line in seen[key]:
            assert line[name] is None or line["held"] == of_all[line[name]]
