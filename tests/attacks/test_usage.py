"""A tenant who lies to ``koord usage``: in requests, names, owners, labels and times of her pods.

What others have held is told as ever, to people, to programs and over HTTP, and her own lies cost
her what they say, or nothing.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.support.work import grows_with

from koord.answers.encoding import encode
from koord.answers.gpus import MILLI, MOST_GPUS, measure_request
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.redaction import Sight
from koord.answers.usage import find_segments, look_at, view_usage
from koord.answers.usage_report import MOST_LINES, MOST_USERS, make_report
from koord.answers.usage_rows import SEGMENT_COLUMNS, list_columns, list_rows, list_segments
from koord.answers.usage_rows import read_segment as read_row
from koord.cli.output import SafeConsole, print_parts, to_json, to_yaml
from koord.cli.usage_files import format_csv, format_lines
from koord.cli.usage_report_view import ReportRequest, make_sections, write_html, write_markdown
from koord.cli.usage_store import import_segments
from koord.cli.usage_view import make_parts
from koord.core.model.pods import OwnerReference, Pod, PodPhase
from koord.core.model.units import AMOUNT_LIMIT as MOST
from koord.core.usage.book import UsageBook
from koord.core.usage.plugin import UsageOptions, UsageTimes
from koord.core.usage.segments import Segment, Window
from koord.core.usage.slices import SliceSpan, share_slices
from koord.core.usage.tables import By
from koord.domains.planning import PlanOptions
from koord.domains.usage import PLANNING
from koord.see.paging import InvalidQuery
from koord.see.route import Ask, NothingThere
from koord.see.snapshots import Snapshot
from koord.see.usage_routes import report_usage
from koord.store.keeper import RecordStore
from koord.store.usage_reading import UsageReader
from koord.store.usage_recording import UsageRecorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-7g.80gb"
NOW = 1_790_000_000.0
DAY = 86_400.0
MONTH = Window(int((NOW - 20 * DAY) * 1000), int(NOW * 1000))
EVIL = "\x1b[2J<script>x</script>\u202e=cmd|'x'!A1"
EVIL += "\n# [x](javascript:x) https://evil.example www.evil.example"


def bind(name: str, hours: float = 10.0, **requests: int) -> Pod:
    pod = make_pod(name).requests(**requests).running("n0").build()
    return replace(pod, created=NOW - hours * 3600, started=NOW - hours * 3600)


def ask_for(pod: Pod, **amounts: int) -> Pod:
    requests = {**dict(pod.shape.requests), **amounts}
    return replace(pod, shape=replace(pod.shape, requests=tuple(sorted(requests.items()))))


def scene(*pods: Pod) -> FakeCluster:
    cluster = (
        make_cluster().nodes(make_node("n0").gpu(8)).pods(ask_for(bind("team/job"), **{GPU: 2}))
    )
    cluster.pods(*pods)
    cluster.state.advance(NOW)
    cluster.state.refresh()
    return cluster


def segments_of(cluster: FakeCluster) -> list[Segment]:
    return list(find_segments(cluster.state, NOW))


def held_by(cluster: FakeCluster, by: By = By.NAMESPACE) -> dict[str, str]:
    usage = encode(view_usage(cluster.state, segments_of(cluster), by, MONTH))
    return {row[str(by)]: row["hours"] for row in usage["rows"]}


def test_what_long_jobs_hold_of_memory_is_a_number_of_more_than_64_bits() -> None:
    cluster = scene(ask_for(bind("team/long", hours=400), memory=1 << 41))
    usage = encode(view_usage(cluster.state, segments_of(cluster), By.NAMESPACE, MONTH))
    held = (1 << 41) * 400 * 3_600_000
    assert held > 1 << 64
    for text in (to_json(usage), to_json({"value": usage})):
        assert f"{held}" in text
    assert json.loads(to_json(usage)) == usage
    assert f"{held}" in to_yaml(usage)


LIES = [
    {GPU: MOST},
    {MIG: MOST},
    {"koordinator.sh/gpu": MOST},
    {"koordinator.sh/gpu-core": MOST, "koordinator.sh/gpu-memory-ratio": MOST},
    {"koordinator.sh/gpu-memory": MOST, "koordinator.sh/gpu.shared": MOST},
    {GPU: MOST, MIG: MOST, "cpu": MOST, "memory": MOST},
]


@pytest.mark.parametrize("amounts", LIES, ids=range(len(LIES)))
def test_who_asks_for_any_number_is_taken_to_hold_what_a_pod_may_hold(
    amounts: dict[str, int], tmp_path: Path
) -> None:
    assert measure_request(amounts).amount <= MOST_GPUS * MILLI
    evil = replace(ask_for(bind("evil/p"), **amounts), node="nowhere")
    cluster = scene(evil)
    assert held_by(cluster)["team"] == "20.000"
    rows = list(list_segments(iter(segments_of(cluster)), MONTH))
    assert format_csv(rows, SEGMENT_COLUMNS).count("\n") == 1 + len(rows)
    assert len(format_lines(rows).splitlines()) == len(rows)
    plugin = next(
        each
        for each in PLANNING.make_plugins(PlanOptions(UsageOptions(is_on=True)))
        if isinstance(each, UsageTimes)
    )
    counted = make_cluster(more_plugins=(plugin,)).nodes(make_node("n0").gpu(8)).pods(evil)
    counted.state.advance(NOW)
    counted.state.refresh()
    assert sum(plugin.sum_by_model().values()) <= MOST_GPUS * MILLI
    with RecordStore(tmp_path / "usage.db", "test", batch_seconds=0.0) as store:
        recorder = UsageRecorder(store)
        recorder.look(look_at(cluster.state, NOW)).result()
        for uid in list(cluster.state.pods):
            cluster.state.remove_pod(uid)
        recorder.look(look_at(cluster.state, NOW + 30)).result()
    book = UsageReader(tmp_path / "usage.db").read(MONTH)
    assert {key.namespace for key in book.sums} == {"team", "evil"}


def test_an_imported_segment_may_say_any_number(tmp_path: Path) -> None:
    row = {"uid": "u", "namespace": "a", "pod": "p", "from": "2026-09-01T00:00:00Z"}
    segment = read_row({**row, "to": "2026-09-20T00:00:00Z", "milliGpus": (1 << 53) - 1})
    with RecordStore(tmp_path / "usage.db", "test", batch_seconds=0.0) as store:
        store.submit(lambda writer: import_segments([segment], int(NOW * 1000), writer)).result()


def test_thousands_of_slices_on_one_node_cost_in_proportion() -> None:
    def make(count: int) -> Callable[[], Any]:
        spans = [SliceSpan(f"u{at}", at % 7, 1000 + at % 3, 1 + at % 7) for at in range(count)]
        return lambda: share_slices(spans)

    assert grows_with(200, make) < 1.4
    assert share_slices([SliceSpan("evil", 0, 9, MOST), SliceSpan("a", 1, 9, 2)])["a"] == 286


@pytest.mark.parametrize("by", [By.OWNER, By.USER, By.NODE, By.NAMESPACE])
def test_names_steer_no_terminal_no_page_and_no_spreadsheet(by: By) -> None:
    owner = OwnerReference(EVIL * 2000, "Job", "batch/v1", "u", True)
    label = {"user": EVIL}
    pods = []
    for at in range(20):
        pod = replace(bind(f"evil/p-{at}"), owners=(owner,), node=EVIL)
        pods.append(replace(pod, profile=replace(pod.profile, labels=label)))
    cluster = scene(*(ask_for(pod, **{GPU: 1}) for pod in pods))
    segments = list(find_segments(cluster.state, NOW, "user"))
    usage = view_usage(cluster.state, segments, by, MONTH)
    book = UsageBook(MONTH)
    book.add_segments(segments)
    sections = list(make_sections(make_report(book), "2026-09", REQUEST))
    markdown, page = write_markdown(sections), write_html(sections)
    texts = [*map(str, _print(make_parts(usage))), markdown, page]
    texts.append(format_csv(list_rows(usage.table), list_columns(by)))
    for text in texts:
        assert len(text) < 60_000
        assert all(line.isprintable() for line in text.splitlines())
    assert "<script" not in page
    assert "https://" not in markdown
    assert "www." not in markdown
    assert "[x]" not in markdown.replace("\\[", "")


REQUEST = ReportRequest("", "", (), "UTC", "", None)


def _print(parts: Any) -> list[str]:
    file = io.StringIO()
    print_parts(parts, SafeConsole(file=file, width=100_000, highlight=False, markup=False))
    return file.getvalue().splitlines()


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_no_cell_is_a_formula(sign: str) -> None:
    row = {
        "from": "",
        "to": "",
        "user": f"{sign}1+1",
        "heldMilliGpuMs": 1,
        "gpuHours": "",
        "pods": 1,
    }
    assert f",'{sign}1+1," in format_csv([row], list_columns("user"))


@pytest.mark.parametrize(
    ("times", "hours"),
    [
        ({"bound": 1.0}, "10.000"),
        ({"started": -62_135_596_800.0}, "10.000"),
        ({"bound": 253_402_300_799.0}, None),
        ({"phase": PodPhase.SUCCEEDED, "finished": 253_402_300_799.0}, "10.000"),
        ({"phase": PodPhase.SUCCEEDED, "finished": -62_135_596_800.0}, None),
        ({"phase": PodPhase.FAILED, "gone_by": 253_402_300_799.0}, "10.000"),
        ({"checkpointed": 253_402_300_799.0}, "10.000"),
    ],
)
def test_no_status_says_that_more_was_held_than_time_has_passed(
    times: dict[str, Any], hours: str | None
) -> None:
    cluster = scene(replace(ask_for(bind("evil/p"), **{GPU: 1}), **times))
    assert held_by(cluster).get("evil") == hours
    for segment in segments_of(cluster):
        assert segment.end <= NOW * 1000 or segment.milliseconds == 0


def test_pods_that_name_a_quota_of_others_do_not_count_for_it() -> None:
    quotas = (make_quota("team", min={GPU: 8}), make_quota("own", min={GPU: 8}))
    pod = replace(ask_for(bind("evil/p"), **{GPU: 4}), owners=())
    cluster = scene(pod).quotas(*quotas)
    cluster.state.refresh()
    report = make_report(_book_of(cluster), "team")
    assert report.held == 0
    assert [line.name for line in report.owners] == []


def _book_of(cluster: FakeCluster) -> UsageBook:
    book = UsageBook(MONTH)
    book.add_segments(segments_of(cluster))
    return book


def test_thousands_of_users_and_jobs_are_few_lines() -> None:
    pods = []
    for at in range(MOST_USERS + 50):
        pod = replace(ask_for(bind(f"evil/p-{at}"), **{GPU: 1}), owners=())
        pods.append(replace(pod, profile=replace(pod.profile, labels={"user": f"u-{at}"})))
    cluster = scene(*pods)
    book = UsageBook(MONTH)
    book.add_segments(find_segments(cluster.state, NOW, "user"))
    report = make_report(book)
    assert (len(report.owners), len(report.users)) == (MOST_LINES, MOST_USERS)
    assert report.other_users == 50 * 10 * 3_600_000 * MILLI
    document = encode(report)
    assert document["otherUsers"] == report.other_users
    assert sum(line["held"] for line in document["users"]) + report.other_users == sum(
        line.held for line in report.namespaces if line.name == "evil"
    )


# --- over HTTP -----------------------------------------------------------------------------------


def snapshot_of(cluster: FakeCluster, *namespaces: str) -> Snapshot:
    sight = Sight(frozenset(namespaces)) if namespaces else Sight()
    reading = Reading(cluster.state, sight=sight)
    return Snapshot(reading, Target(TargetKind.POD, "team", ""), 1, NOW)


@pytest.mark.parametrize(
    "params",
    [
        {"month": "9999-12"},
        {"month": "0001-01"},
        {"month": "2026-02-31"},
        {"month": "2026-11-25T00:00"},
        {"month": "\u0662\u0660\u0662\u0666-11"},
        {"month": "0" * 253},
        {"month": "x" * 4000},
        {"tz": "../../../etc/passwd"},
        {"tz": "/etc/localtime"},
        {"tz": "Europe"},
        {"tz": "a\x00b"},
        {"tz": "\ud800"},
        {"quota": "../team"},
        {"quota": "\x1b[2J"},
        {"quota": "x" * 4000},
    ],
    ids=str,
)
def test_questions_that_make_no_sense_are_refused_or_answered(params: dict[str, str]) -> None:
    snapshot = snapshot_of(scene(), "evil")
    try:
        answer = report_usage(snapshot, Ask(params=params)).value
    except (InvalidQuery, NothingThere):
        return
    assert json.loads(json.dumps(answer))["held"] >= 0


def test_a_tenant_reads_no_name_of_others_whatever_she_claims() -> None:
    def claim(name: str, owner: str) -> Pod:
        claimed = (OwnerReference(owner, "Job", "batch/v1", "u", True),)
        return replace(ask_for(bind(name), **{GPU: 1}), owners=claimed)

    cluster = scene(
        claim("team/secret-0", "secret"),
        claim("evil/a", "team/secret-x"),
        claim("evil/b", "(others)"),
    )
    answer = report_usage(snapshot_of(cluster, "evil"), Ask()).value
    text = json.dumps(answer)
    assert "team/secret-x" in text.replace("evil/", "")
    assert "team/job" not in text
    assert '"secret' not in text
    assert {line["namespace"] for line in answer["namespaces"]} == {"evil", None}
    assert {line["owner"] for line in answer["owners"]} == {
        "evil/team/secret-x",
        "evil/(others)",
        None,
    }


TEXTS = st.text(max_size=12) | st.sampled_from((EVIL, "x" * 700))
AMOUNTS = st.dictionaries(
    st.sampled_from((GPU, MIG, "koordinator.sh/gpu", "koordinator.sh/gpu-memory", "cpu", "memory")),
    st.integers(0, 12) | st.integers(0, MOST),
    max_size=3,
)
TIMES = st.floats(-62_135_596_800, 253_402_300_799) | st.floats(NOW - 9 * DAY, NOW + DAY)


@st.composite
def lying_pods(draw: st.DrawFn) -> list[Pod]:
    pods = []
    for at in range(draw(st.integers(1, 4))):
        pod = ask_for(bind(f"evil/p-{at}"), **draw(AMOUNTS))
        owner = OwnerReference(draw(TEXTS), draw(TEXTS), draw(TEXTS), draw(TEXTS), True)
        pods.append(
            replace(
                pod,
                owners=(owner,),
                node=draw(st.sampled_from(("n0", "nowhere"))),
                phase=draw(st.sampled_from(list(PodPhase))),
                bound=draw(TIMES | st.just(0.0)),
                started=draw(TIMES),
                finished=draw(TIMES | st.just(0.0)),
                gone_by=draw(TIMES | st.just(0.0)),
                checkpointed=draw(TIMES),
                profile=replace(pod.profile, labels={"user": draw(TEXTS)}),
            )
        )
    return pods


@settings(max_examples=20)
@given(lying_pods(), st.sampled_from(list(By)))
def test_whatever_a_tenant_says_others_have_held_the_same(pods: list[Pod], by: By) -> None:
    cluster = scene(*pods)
    segments = list(find_segments(cluster.state, NOW, "user"))
    usage = view_usage(cluster.state, segments, by, MONTH)
    table = usage.table
    assert sum(row.held for row in table.rows) == table.total.held
    ours = [segment for segment in segments if segment.holder.namespace == "team"]
    assert sum(segment.held for segment in ours) == 2 * MILLI * 10 * 3_600_000
    most = MONTH.milliseconds * MOST_GPUS * MILLI * len(pods)
    assert 0 <= table.total.held - 2 * MILLI * 10 * 3_600_000 <= most
    assert json.loads(to_json(encode(usage))) == encode(usage)
    text = format_csv(list_rows(table), list_columns(by))
    assert all(line.isprintable() for line in text.splitlines())
    msgspec.json.encode(segments)
