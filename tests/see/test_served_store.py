"""The store of ``koord serve``: what goes wrong is said, and tried again."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from tests.see.test_app import open_server
from tests.store.stores import EPOCH, fill, make_line, open_store

from koord.answers.audit_analysis import AuditScope
from koord.answers.envelope import GapCause
from koord.answers.happenings import Subject
from koord.answers.leaders import Leader
from koord.answers.redaction import Sight
from koord.answers.story import SeenObjects, hide_others, make_story
from koord.cli import serve_store
from koord.cli.serve_feed import find_feed
from koord.cli.serve_store import ServedStore
from koord.domains.see_settings import SeeSettings
from koord.kube.errors import KubeError
from koord.kube.leader_report import LeaderReport
from koord.runtime.reviews import TokenReviews
from koord.see.app import BASE
from koord.see.snapshots import OnDemand
from koord.store.feed import FeedError
from koord.store.retention import Keep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALWAYS = Keep(1 << 60)


async def find():
    raise FeedError("nobody leads")


async def look():
    return None


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 - a thread changes it
        await asyncio.sleep(0.01)


async def test_a_store_that_another_process_writes_is_taken_when_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_store, "_RETRY_SECONDS", 0.02)
    path = tmp_path / "see.db"
    store = ServedStore(path, ALWAYS)
    other = open_store(path)
    task = asyncio.create_task(store.run(find, look, dict))
    try:
        await until(lambda: store.failures)
        (finding,) = store.find_trouble()
        assert (finding.subject.kind, finding.reason) == ("Store", "NotWritten")
        assert "end that process" in finding.message
        other.close()
        await until(lambda: not store.problem)
        assert store.find_trouble() == ()
        await until(lambda: store.feed_problem == "nobody leads")
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert store.problem
    registry = CollectorRegistry()
    registry.register(store.series)
    assert registry.get_sample_value("koord_see_store_failures_total") == store.failures >= 1
    assert registry.get_sample_value("koord_see_store_written") == 0


def test_what_is_not_followed_now_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "see.db"
    fill(path, [make_line(1), make_line(2, EPOCH + 1)])
    store = ServedStore(path, ALWAYS)
    records, gaps = store.read_story(Subject("PodGroup", "team-a", "train"))
    assert [record["seq"] for record in records] == [1, 2]
    assert [gap.because for gap in gaps] == [GapCause.NO_FEED]
    assert GapCause.NO_FEED in {gap.because for gap in store.analyse(60, AuditScope()).gaps}


async def test_the_report_is_answered_without_a_store_and_its_questions_are_checked(
    tmp_path: Path,
) -> None:
    async with open_server() as client:
        status, document, _ = await client.get(f"{BASE}/auditreport?since=7d")
        assert (status, document["value"]["waits"]["units"]) == (200, 0)
        assert "NoFeed" in {gap["because"] for gap in document["gaps"]}
        for wrong in ("since=32d", "since=x", "until=1h"):
            status, refusal, _ = await client.get(f"{BASE}/auditreport?{wrong}")
            assert (status, refusal["error"]) == (400, "Invalid"), wrong
        store = ServedStore(tmp_path / "none.db", ALWAYS)
        client.server.snapshots._on_demand = OnDemand(
            None, None, None, store.analyse, store.find_trouble
        )
        await client.server.snapshots.read_once()
        status, document, _ = await client.get(f"{BASE}/auditreport")
        assert (status, document["value"]["waits"]["units"]) == (200, 0)
        _, document, _ = await client.get(f"{BASE}/health")
        assert document["value"]["items"][0]["subject"]["kind"] == "Store"


def test_a_story_names_no_units_and_no_quotas_of_others() -> None:
    records = [
        json.loads(make_line(1, kind="Placed", quotas=["q"])),
        {
            **json.loads(make_line(2, kind="Changed", quota="q", changes=[{"field": "max"}])),
            "unit": None,
            "trace": None,
        },
        json.loads(make_line(3, kind="Evicted", policy="preemption", by="other/x")),
    ]
    subject = Subject("PodGroup", "team-a", "train")
    story = make_story(subject, records, SeenObjects(), EPOCH + 1000)
    assert {happening.by for happening in story.happenings} == {"", "other/x"}
    assert any(happening.text.startswith("quota q") for happening in story.happenings)
    seen = hide_others(story, Sight(frozenset({"team-a"}), quotas=False))
    assert "other/x" not in {happening.by for happening in seen.happenings}
    assert not any(happening.text.startswith("quota q") for happening in seen.happenings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"store": "ram"}, "store"),
        ({"store": "sqlite:see.db"}, "store"),
        ({"keep": "1h"}, "1d to 3650d"),
        ({"keepBytes": "1Mi"}, "16Mi to 1Pi"),
    ],
)
def test_settings_of_the_store_that_make_no_sense_are_refused(
    settings: dict[str, str], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        SeeSettings(**settings)
    see = SeeSettings(store="sqlite:/data/see.db", keep="7d", keepBytes="1Gi")
    assert (see.store_file, see.keep, see.keep_bytes) == ("/data/see.db", 604_800.0, 1 << 30)


class FeedReviewer:
    """Stands in for an API server that knows one token, for some audiences."""

    def __init__(self, audiences: list[str]) -> None:
        self.audiences = audiences
        self.asked: list[dict[str, object]] = []

    async def post(self, _: str, body: dict[str, dict[str, object]]) -> bytes:
        self.asked.append(body["spec"])
        status = {"authenticated": True, "user": {"username": "s"}, "audiences": self.audiences}
        return json.dumps({"status": status}).encode()


@pytest.mark.parametrize(
    ("audience", "says", "is_good", "asks_for"),
    [
        ("koord-feed", ["koord-feed"], True, ["koord-feed"]),
        ("koord-feed", [], False, ["koord-feed"]),  # it knows no audiences
        ("", ["api"], True, None),  # of any other server that is for the API server to refuse
    ],
)
async def test_a_token_for_the_feed_is_asked_about_as_one_there_and_nowhere_else(
    *, audience: str, says: list[str], is_good: bool, asks_for: list[str] | None
) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"aud": ["koord-feed"]}).encode()).decode()
    reviewer = FeedReviewer(says)
    reviews = TokenReviews(reviewer, audience=audience)  # type: ignore[arg-type]
    kept = await reviews.find_user(f"x.{claims.rstrip('=')}.y")
    assert (kept.value is not None) == is_good
    assert reviewer.asked[0].get("audiences") == asks_for


class OnePod:
    """Stands in for an API server with the pod of a leader."""

    async def get(self, path: str, kind: type[Any]) -> Any:
        if not path.endswith("/namespaces/koord-system/pods/operators-0"):
            raise KubeError("there is none")
        return msgspec.json.decode(b'{"status": {"podIP": "10.0.0.7"}}', type=kind)


@pytest.mark.parametrize(
    ("feed", "address"),
    [
        ("0.0.0.0:8080", "10.0.0.7:8080"),
        ("[::]:8080", "10.0.0.7:8080"),
        ("10.1.1.1:80", "10.1.1.1:80"),
        ("", ""),
        ("example.com:80", ""),
    ],
)
async def test_the_feed_is_that_of_the_pod_that_leads(feed: str, address: str) -> None:
    leader = Leader("koord-operators", "operators-0_uuid", "", 1.0, LeaderReport(feed=feed))
    assert await find_feed(OnePod(), "koord-system", leader) == address  # type: ignore[arg-type]
    gone = Leader("koord-operators", "x_uuid", "", 1.0, LeaderReport(feed="0.0.0.0:1"))
    with pytest.raises(FeedError):
        await find_feed(OnePod(), "koord-system", gone)  # type: ignore[arg-type]
