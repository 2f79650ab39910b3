"""Whose turn it is: what others say of it, as settings of queues."""

import json

import pytest
from tests.migrate.test_rewrite import job_of, rewrite

from koord.api.lint import lint_documents

QUEUE = "operators.koordinator.sh/queue"


def queue_of(kind, name="q", **spec):
    version = {"ClusterQueue": "kueue.x-k8s.io/v1beta1", "Queue": "scheduling.volcano.sh/v1beta1"}
    return {
        "apiVersion": version[kind],
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def settings_of(document):
    text = (document["metadata"].get("annotations") or {}).get(QUEUE)
    return None if text is None else json.loads(text)


def quota_of(documents, name="q"):
    return next(
        one
        for one in documents
        if one["kind"] == "ElasticQuota" and one["metadata"]["name"] == name
    )


@pytest.mark.parametrize(
    ("kind", "spec", "settings"),
    [
        ("ClusterQueue", {"queueingStrategy": "StrictFIFO"}, {"policy": "Strict"}),
        ("ClusterQueue", {"queueingStrategy": "BestEffortFIFO"}, {"policy": "BestEffort"}),
        ("ClusterQueue", {}, None),
        ("ClusterQueue", {"stopPolicy": "Hold"}, {"stop": "Hold"}),
        ("ClusterQueue", {"stopPolicy": "None"}, None),
        ("Queue", {"dequeueStrategy": "fifo"}, {"policy": "Strict"}),
        ("Queue", {"dequeueStrategy": "traverse"}, {"policy": "BestEffort"}),
    ],
)
def test_strategy_of_a_queue(kind, spec, settings):
    documents, lost = rewrite(queue_of(kind, **spec))
    assert settings_of(quota_of(documents)) == settings
    assert not {"spec.queueingStrategy", "spec.dequeueStrategy", "spec.stopPolicy"} & set(lost)
    assert [one for checked in lint_documents(documents) for one in checked.problems] == []


def test_a_strategy_that_nobody_has_is_told():
    documents, lost = rewrite(queue_of("ClusterQueue", queueingStrategy="Newest"))
    assert "spec.queueingStrategy" in lost
    assert settings_of(quota_of(documents)) is None


def volcano_job(name, wait, queue="q"):
    template = {"spec": {"containers": [{"name": "c"}]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {"sla-waiting-time": wait}},
        "spec": {"queue": queue, "tasks": [{"name": "t", "replicas": 2, "template": template}]},
    }


def test_the_shortest_wait_of_its_jobs_protects_the_first_of_a_queue():
    queue = queue_of("Queue", dequeueStrategy="traverse")
    documents, lost = rewrite(queue, volcano_job("a", "2h"), volcano_job("b", "30m"))
    assert settings_of(quota_of(documents)) == {"policy": "Backfill", "protectAfter": "30m"}
    assert "sla-waiting-time" not in lost


def test_a_wait_without_its_queue_is_told():
    _, lost = rewrite(volcano_job("a", "2h"))
    assert "sla-waiting-time" in lost
    _, lost = rewrite(
        job_of(annotations={"volcano.sh/sla-waiting-time": "1h", "volcano.sh/queue-name": "q"})
    )
    assert "sla-waiting-time" in lost


def test_a_wait_that_is_no_duration_is_told():
    documents, lost = rewrite(queue_of("Queue"), volcano_job("a", "soon"))
    assert "sla-waiting-time" in lost
    assert settings_of(quota_of(documents)) is None


def koordinator_quota(policy, annotations=None):
    labels = {"koord-queue/queue-policy": policy}
    metadata = {"name": "q", "labels": labels} | (
        {"annotations": annotations} if annotations else {}
    )
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": metadata,
        "spec": {"min": {"cpu": "1"}, "max": {"cpu": "2"}},
    }


@pytest.mark.parametrize(("policy", "ours"), [("Priority", "BestEffort"), ("Block", "Strict")])
def test_policy_of_koord_queue(policy, ours):
    documents, lost = rewrite(koordinator_quota(policy))
    assert settings_of(documents[0]) == {"policy": ours}
    assert documents[0]["metadata"]["labels"] == {"koord-queue/queue-policy": policy}
    assert lost == []


def test_intelligent_of_koord_queue_is_told():
    quota = koordinator_quota("Intelligent")
    assert rewrite(quota) == ([quota], ["koord-queue/queue-policy"])


def test_settings_that_a_quota_has_stay():
    quota = koordinator_quota("Block", {QUEUE: '{"policy": "Backfill"}'})
    assert rewrite(quota) == ([quota], [])
