"""The `activeDeadlineSeconds` of a Job itself: Kubernetes ends all of its pods then."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.cluster import make_unit
from tests.suspend.jobs import JobCluster, make_job, make_job_cluster

from koord.core.queue.plugin import Queues
from koord.core.queue.run_time import Knowledge

if TYPE_CHECKING:
    from koord.core.queue.run_time import RunTime

LIMIT = 3600


def make_running(**spec: Any) -> JobCluster:
    """Return a cluster with a Job that waits with its gate, and has begun a minute ago."""
    jobs = make_job_cluster()
    job = make_job("train", 1, asks=False, **{"activeDeadlineSeconds": LIMIT, **spec})
    job["spec"]["suspend"] = False
    began = datetime.fromtimestamp(jobs.now - 60, UTC)
    job["status"] = {"startTime": began.strftime("%Y-%m-%dT%H:%M:%SZ")}
    jobs.submit(job)
    jobs.cluster.pods(*jobs.pods_of("train", 1))
    return jobs


def run_time(jobs: JobCluster) -> RunTime:
    pod = jobs.cluster.pod("train-0-x0")
    return jobs.cluster.state.plugin(Queues).limits.run_time_of(make_unit("u", [pod]))


def test_what_is_left_of_it_limits_a_waiting_pod_and_is_written_nowhere() -> None:
    jobs = make_running()
    assert (run_time(jobs).level, run_time(jobs).limit) == (Knowledge.DECLARED, LIMIT - 60)
    jobs.wait(40)
    jobs.cluster.state.advance(jobs.now)
    assert run_time(jobs).limit == LIMIT - 100, "waiting is included"
    pod = jobs.cluster.pod("train-0-x0")
    assert jobs.cluster.state.plugin(Queues).time_limit(pod) is None


def test_it_limits_a_pod_that_runs() -> None:
    jobs = make_running()
    limits = jobs.cluster.state.plugin(Queues).limits
    pod = replace(jobs.cluster.pod("train-0-x0"), node="n0", started=jobs.now, grace=10)
    jobs.cluster.pods(pod)
    known = limits.run_time_of_placed(jobs.cluster.pod("train-0-x0"))
    assert (known.level, known.bound) == (Knowledge.DECLARED, LIMIT - 60 + 10 + 30)


@pytest.mark.parametrize(
    "spec", [{"activeDeadlineSeconds": None}, {"activeDeadlineSeconds": -5}, {"suspend": True}]
)
def test_without_one_or_while_it_is_suspended_nothing_ends(spec: dict[str, Any]) -> None:
    jobs = make_running()
    job = jobs.job("train")
    job["spec"] |= spec
    jobs.see("train")
    assert run_time(jobs).level is Knowledge.NONE


def test_a_pod_of_another_namespace_is_none_of_the_job() -> None:
    jobs = make_running()
    pod = replace(jobs.pods_of("train", 1, of=7)[0], namespace="other", uid="other")
    jobs.cluster.pods(pod)
    limits = jobs.cluster.state.plugin(Queues).limits
    assert limits.lasts(jobs.cluster.state.pods["other"]) is None


def test_no_number_of_seconds_is_too_large() -> None:
    jobs = make_running(activeDeadlineSeconds=2**63 - 1)
    assert run_time(jobs).level is Knowledge.DECLARED
