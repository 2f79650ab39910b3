"""A tenant who may label his namespace: what his labels cost others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import make_pod
from tests.cluster import make_cluster
from tests.suspend.jobs import JobCluster, make_job, make_job_cluster

from koord.api.keys import operators
from koord.api.keys.preemption import ALLOW_DISABLE_PREEMPTIBLE
from koord.core.eviction.protection import find_lasting_protection
from koord.core.model.nodes import Namespace
from koord.core.plugins.inter_pod import InterPod
from koord.core.suspend.labels import LABEL_SECONDS
from koord.core.suspend.lines import Lines

MANY = 600


def count_choices(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list that gets an entry each time the first Jobs of a line are looked for."""
    choices, choose = list[Any](), Lines.choose

    def count(lines: Lines, *line: Any) -> list[str]:
        choices.append(line)
        return choose(lines, *line)

    monkeypatch.setattr(Lines, "choose", count)
    return choices


def label(jobs: JobCluster, value: str) -> None:
    jobs.label("default", **{operators.ADMISSION: value})


@pytest.fixture
def many_jobs() -> JobCluster:
    jobs = make_job_cluster(gpus=1)
    label(jobs, "suspend")
    jobs.submit(*(make_job(f"j{at}", 1, asks=False) for at in range(MANY)))
    jobs.cluster.state.advance(jobs.now)
    jobs.wait(LABEL_SECONDS)
    return jobs


def test_a_label_that_concerns_many_jobs_is_applied_to_all_of_them_at_once(
    many_jobs: JobCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each Job that left its line had the stand-ins of the next one made, for seconds."""
    choices = count_choices(monkeypatch)
    for value, waiting in (("gates", 0), ("suspend", 512)):
        label(many_jobs, value)
        many_jobs.cluster.state.advance(many_jobs.now)
        assert len(many_jobs.waiting) == waiting
        many_jobs.wait(LABEL_SECONDS)
    assert len(choices) <= 4


def test_a_label_that_changes_all_the_time_is_looked_at_now_and_then(
    many_jobs: JobCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = count_choices(monkeypatch)
    for at in range(51):
        label(many_jobs, ("gates", "suspend")[at % 2])
        many_jobs.wait(LABEL_SECONDS / 25)
        many_jobs.cluster.state.advance(many_jobs.now)
    assert len(choices) <= 8
    due = many_jobs.plugin.next_due()
    assert due is None or due <= many_jobs.now + LABEL_SECONDS
    many_jobs.wait(LABEL_SECONDS)
    many_jobs.cluster.state.advance(many_jobs.now)
    assert many_jobs.waiting == [], "the last one counts"


def test_the_right_to_spare_pods_is_one_of_administrators() -> None:
    """Whoever may label his namespace has it: a policy has to keep this label from him."""
    pod = replace(make_pod("p").gpu(1).running("n0").build(), is_protected=True)
    cluster = make_cluster(1).pods(pod)
    assert find_lasting_protection(cluster.state, pod) is None
    labels = {ALLOW_DISABLE_PREEMPTIBLE: "true"}
    cluster.state.plugin(InterPod).upsert_namespace(Namespace("default", labels))
    assert find_lasting_protection(cluster.state, pod) is not None
