"""What queues remember of pods: histories, use of users, and both over a restart."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.support.laws import examples

from koord.api.elasticquota import ElasticQuotaStatus
from koord.core.model.pods import OwnerReference, Pod, PodPhase
from koord.core.model.run_terms import RunTerms
from koord.core.queue.history import MOST_KINDS
from koord.core.queue.memory import QueueRecord
from koord.core.queue.plugin import QueueOptions, Queues
from koord.core.queue.run_time import KILL_MARGIN, Knowledge, QueueHints
from koord.kube.translate.queue_records import encode_record, read_record

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

GPU = "nvidia.com/gpu"
FAIR = {"user_fairness": "Decayed"}


def make_queue(record: QueueRecord | None = None, **settings: Any) -> FakeCluster:
    options = QueueOptions(are_users_stamped=True)
    cluster = make_cluster(4, queue=options)
    quota = make_quota("team", max={GPU: 99}, queue=settings or FAIR)
    return cluster.quotas(replace(quota, queue_record=record))


def ran(name: str, start: int, end: int = 0, owner: str = "", **terms: Any) -> Pod:
    """Return a pod that has succeeded, or still runs if it has no end."""
    pod = make_pod(name).quota("team").gpu(1).running("n0").build()
    owners = (OwnerReference(owner, "Job", "batch/v1", owner, is_controller=True),) if owner else ()
    phase = PodPhase.SUCCEEDED if end else PodPhase.RUNNING
    hints = (("queue", QueueHints(terms=RunTerms(**terms))),)
    fields = {"started": start, "finished": end, "phase": phase, "owners": owners}
    return replace(pod, extensions=hints, **fields)


def look(cluster: FakeCluster, now: int) -> Queues:
    cluster.state.advance(now)
    cluster.state.refresh()
    return cluster.state.plugin(Queues)


def next_run(cluster: FakeCluster, name: str, owner: str = "", **terms: Any) -> tuple[Any, ...]:
    pod = replace(ran(name, 0, 0, owner, **terms), node="", phase=PodPhase.PENDING)
    run_time = cluster.state.plugin(Queues).limits.run_time_of_running((pod,))
    return run_time.level, run_time.expected, run_time.bound


def test_jobs_that_a_cron_job_makes_tell_how_long_the_next_takes() -> None:
    cluster = make_queue()
    for at, seconds in enumerate((100, 200, 300)):
        start = 1000 * at + 10
        cluster.pods(ran(f"p{at}", start, start + seconds, owner=f"nightly-2911{at}"))
    look(cluster, 5000)
    assert next_run(cluster, "p9", "nightly-29119") == (Knowledge.HISTORY, 250, 600)
    assert next_run(cluster, "p8", "other-29119")[0] is Knowledge.NONE


def test_one_run_of_its_kind_says_more_than_a_limit() -> None:
    cluster = make_queue()
    cluster.pods(ran("p0", 10, 210, owner="nightly-29110"))
    look(cluster, 5000)
    pod = replace(ran("p9", 0, owner="nightly-29119"), node="", phase=PodPhase.PENDING)
    limited = replace(pod, extensions=(("queue", QueueHints(deadline=1000)),))
    limits = cluster.state.plugin(Queues).limits
    run_time = limits.run_time_of_running((limited,))
    assert (run_time.level, run_time.expected) == (Knowledge.DECLARED, 200)
    assert (run_time.bound, run_time.limit) == (1000 + limited.grace + KILL_MARGIN, 1000)
    assert limits.run_time_of_running((pod,)).level is Knowledge.NONE


def test_a_run_class_goes_before_names_and_is_of_its_user() -> None:
    cluster = make_queue()
    for at in range(3):
        cluster.pods(
            ran(f"p{at}", 10, 110 + at, owner=f"job-{'abc'[at]}", run_class="x", user="ada")
        )
    look(cluster, 5000)
    assert next_run(cluster, "q", "anything", run_class="x", user="ada")[0] is Knowledge.HISTORY
    assert next_run(cluster, "r", "anything", run_class="x", user="eve")[0] is Knowledge.NONE


def test_a_run_that_has_only_a_limit_takes_as_large_a_part_of_it_as_others_of_its_user() -> None:
    cluster = make_queue()

    def limited(pod: Pod) -> Pod:
        return replace(pod, extensions=(("queue", QueueHints(deadline=1000)),))

    for at in range(20):
        start = 1000 * at + 10
        cluster.pods(limited(ran(f"p{at}", start, start + 10 * (at + 1), owner=f"job-{'x' * at}a")))
    look(cluster, 50_000)
    pod = replace(limited(ran("q", 0, 0, "new")), node="", phase=PodPhase.PENDING)
    run_time = cluster.state.plugin(Queues).limits.run_time_of_running((pod,))
    assert (run_time.level, run_time.expected, run_time.limit) == (Knowledge.DECLARED, 110, 1000)
    assert run_time.bound is not None
    assert run_time.bound >= 1000


def test_runs_of_other_tenants_change_no_estimate_whatever_they_say() -> None:
    """In the same quota, under the same names and class, for the same user, and of every length."""
    cluster = make_cluster(4, queue=QueueOptions()).quotas(make_quota("team", queue=FAIR))
    for at in range(3):
        cluster.pods(ran(f"p{at}", 10, 110, owner=f"job-{at}", run_class="x", user="ada"))
    look(cluster, 5000)
    before = next_run(cluster, "q", "job-9", run_class="x", user="ada")
    for at in range(2 * MOST_KINDS):
        run_class = "x" if at % 2 else f"x{at}"
        pod = ran(f"p{at}", 10, 11 + at, owner=f"job-{at}", run_class=run_class, user="ada")
        cluster.pods(replace(pod, namespace="other", uid=f"other-{at}"))
        look(cluster, 6000 + at)
    assert next_run(cluster, "q", "job-9", run_class="x", user="ada") == before
    assert before == (Knowledge.HISTORY, 100, 200)


def test_a_gang_has_run_when_its_last_member_has_ended() -> None:
    cluster = make_queue()
    for name in ("g-1", "g-2", "g-3"):
        key = f"default/{name}"
        cluster.pod_groups(make_pod_group(key, 2))
        gang = make_pod("x").gang(key).build().gang
        cluster.pods(replace(ran(f"{name}-0", 10, 60), gang=gang))
        cluster.pods(replace(ran(f"{name}-1", 20, 0), gang=gang))
        look(cluster, 100)
        cluster.pods(replace(ran(f"{name}-1", 20, 90 + int(name[-1])), gang=gang))
    queues = look(cluster, 200)
    gang = make_pod("x").gang("default/g-4").build().gang
    members = [replace(ran(f"w-{at}", 0), gang=gang) for at in range(2)]
    assert queues.limits.run_time_of_running(members).expected == 83


def test_each_pod_of_a_gang_of_different_pods_knows_how_long_it_takes() -> None:
    cluster = make_queue()
    for name in ("g-1", "g-2", "g-3", "g-4"):
        key = f"default/{name}"
        cluster.pod_groups(make_pod_group(key, 2))
        gang = make_pod("x").gang(key).build().gang
        end = 0 if name == "g-4" else 110
        larger = make_pod("x").gpu(2).build().shape
        cluster.pods(replace(ran(f"{name}-0", 10, end), gang=gang))
        cluster.pods(replace(ran(f"{name}-1", 10, end), gang=gang, shape=larger))
    queues = look(cluster, 200)
    for member in ("g-4-0", "g-4-1"):
        run_time = queues.limits.run_time_of_placed(cluster.pod(member))
        assert (run_time.level, run_time.expected) == (Knowledge.HISTORY, 100)


def test_what_was_evicted_tells_nothing() -> None:
    cluster = make_queue()
    for at in range(3):
        cluster.pods(replace(ran(f"p{at}", 10, 110, owner="job-1"), is_terminating=True))
    look(cluster, 5000)
    assert next_run(cluster, "q", "job-1")[0] is Knowledge.NONE


def test_users_who_have_used_more_come_later_where_that_counts() -> None:
    cluster = make_queue(user_fairness="Decayed", user_weights={"ada": 4})
    cluster.pods(ran("a", 1, 2000, user="ada"), ran("b", 1, 2000, user="bob"))
    queues = look(cluster, 2100)
    of_ada, of_bob, of_eve = (queues.user_share("team", user) for user in ("ada", "bob", "eve"))
    assert of_bob == 4 * of_ada > of_eve == 0
    unfair = make_queue(max_running=9)
    unfair.pods(ran("a", 1, 2000, user="ada"))
    assert look(unfair, 2100).user_share("team", "ada") == Fraction(0)


def test_users_of_a_queue_take_turns() -> None:
    """Ada has used most; two of Bob's do not start before Eve's first, who has used as little."""
    cluster = make_queue(user_fairness="Decayed", policy="BestEffort")
    cluster.pods(ran("old", 1, 2000, user="ada"))
    users = {"a1": "ada", "a2": "ada", "b1": "bob", "b2": "bob", "e1": "eve"}
    for at, (name, user) in enumerate(users.items()):
        hints = (("queue", QueueHints(terms=RunTerms(user=user))),)
        cluster.pods(replace(waiting(name, at), extensions=hints))
    cluster.state.advance(2100)
    assert [unit.pods[0].name for unit in cluster.take(2100)] == ["b1", "e1", "b2", "a1", "a2"]


def test_priorities_come_before_users_and_other_queues_are_no_users_of_it() -> None:
    cluster = make_queue(user_fairness="Decayed", policy="BestEffort")
    cluster.quotas(make_quota("plain", max={GPU: 99}))
    cluster.pods(ran("old", 1, 2000, user="ada"))
    ada, bob = ((("queue", QueueHints(terms=RunTerms(user=user))),) for user in ("ada", "bob"))
    cluster.pods(replace(waiting("urgent", 9), extensions=ada, priority=5))
    cluster.pods(replace(waiting("first", 1), extensions=ada))
    cluster.pods(replace(waiting("between", 2), quota="plain"))
    cluster.pods(replace(waiting("second", 3), extensions=bob))
    cluster.state.advance(2100)
    names = [unit.pods[0].name for unit in cluster.take(2100)]
    assert names == ["urgent", "between", "second", "first"]


def test_where_nobody_says_anything_of_queues_nothing_is_sorted() -> None:
    assert make_cluster(1).state.sorter is None
    cluster = make_queue(max_running=3)
    look(cluster, 1)
    assert cluster.state.sorter is not None


def waiting(name: str, created: int) -> Pod:
    return replace(make_pod(name).quota("team").gpu(1).build(), created=float(created))


def test_without_a_stamp_the_user_is_the_namespace() -> None:
    cluster = make_cluster(1)
    queues = cluster.state.plugin(Queues)
    assert queues.user_of(ran("p", 0, user="root")) == "default"


@settings(max_examples=examples(30))
@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 4000)), min_size=1, max_size=5),
    st.integers(1, 10_000),
)
def test_a_restart_changes_nothing(runs: list[tuple[int, int]], cut: int) -> None:
    def pods(now: int, since: int = 0) -> list[Pod]:
        return [
            ran(f"p{at}", start, start + length if start + length <= now else 0, owner=f"j-{at}")
            for at, (start, length) in enumerate(runs)
            if since < start + length and start <= now
        ]

    whole = make_queue()
    whole.pods(*pods(cut))
    memory = look(whole, cut).remember(cut)
    assert memory is not None
    kept = memory.record("team")
    status = ElasticQuotaStatus(queue_memory=encode_record(kept))
    read = read_record(msgspec.json.encode(status.encode_set())) or QueueRecord()
    assert read.runs == kept.runs
    end = 12_000
    again = make_queue(read)
    again.pods(*pods(end, since=cut))
    whole.pods(*pods(end))
    shares = [look(cluster, end).user_share("team", "default") for cluster in (whole, again)]
    assert shares[0] == shares[1]
    records = [look(cluster, end).remember(end) for cluster in (whole, again)]
    first, second = (record.record("team") for record in records if record is not None)
    assert first.runs == second.runs


def test_a_record_changes_once_per_tick_and_not_without_need() -> None:
    cluster = make_queue()
    cluster.pods(ran("a", 10))
    queues = look(cluster, 300)
    memory = queues.remember(300)
    assert memory is not None
    first = memory.record("team")
    queues.remember(590)
    assert memory.record("team") is first
    queues.remember(600)
    second = memory.record("team")
    assert second.used.until == 600
    cluster.delete_pods("a")
    queues.remember(601)
    queues.remember(1000)
    third = memory.record("team")
    queues.remember(2000)
    assert memory.record("team") is third


def test_nonsense_in_a_status_is_left_out() -> None:
    text = (
        b'{"queueMemory": {"runs": [{"user": "u", "kind": "k", "seconds": [-1]}, '
        b'{"user": "u", "kind": "l", "seconds": [5], "ended": 7}], '
        b'"used": [{"user": "u", "amounts": {"cpu": "-3", "gpu": "12"}}], "usedUntil": -5}}'
    )
    record = read_record(text)
    assert record is not None
    assert [run.kind for run in record.runs] == ["l"]
    assert record.used.ledgers == {"u": {"gpu": 12}}
    assert record.used.until == 0
    assert read_record(b'{"queueMemory": 5}') is None
    assert read_record(b"") is None
