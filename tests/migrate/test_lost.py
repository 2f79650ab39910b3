"""What cannot be translated is listed: nothing disappears from a manifest unseen."""

import pytest
from tests.migrate.test_rewrite import QUOTA, job_of, pod_of, rewrite

from koord_migrate.rewrite import migrate


def object_of(version, kind, spec, **metadata):
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "x", **metadata},
        "spec": spec,
    }


def kai_queue(**gpu):
    return object_of("scheduling.run.ai/v2", "Queue", {"resources": {"gpu": gpu}})


def kai_group(**spec):
    return object_of("scheduling.run.ai/v2alpha2", "PodGroup", spec)


def cluster_queue(*flavors, **spec):
    groups = [{"flavors": [{"resources": [{"name": "cpu"} | one]} for one in flavors]}]
    spec = {"namespaceSelector": {}, "cohortName": "all", "resourceGroups": groups, **spec}
    return object_of("kueue.x-k8s.io/v1beta2", "ClusterQueue", spec)


LOST = [
    (
        object_of("kueue.x-k8s.io/v1beta1", "LocalQueue", {"clusterQueue": "c", "stopPolicy": "x"}),
        ["spec.stopPolicy"],
    ),
    (
        object_of("kueue.x-k8s.io/v1beta1", "LocalQueue", {"clusterQueue": "c", "new": 1}),
        ["spec.new"],
    ),
    (
        object_of(
            "scheduling.volcano.sh/v1beta1", "Queue", {}, annotations={"volcano.sh/hierarchy": "a"}
        ),
        ["volcano.sh/hierarchy"],
    ),
    (
        object_of(
            "kueue.x-k8s.io/v1beta1", "Topology", {}, annotations={"kueue.x-k8s.io/new": "a"}
        ),
        ["kueue.x-k8s.io/new"],
    ),
    (kai_queue(quota=1, limit=1, new=1), ["spec.resources.gpu.new"]),
    (kai_queue(quota=4, limit=4, lendingLimit=2), ["lendingLimit"]),
    (kai_group(minMember=1, preemptibility="semi-preemptible"), ["spec.preemptibility"]),
    (kai_group(minMember=1, queue="q"), ["pods"]),
    (kai_group(subGroups=[{"name": "a", "new": 1}]), ["spec.subGroups.new"]),
    (object_of("kueue.x-k8s.io/v1beta1", "Workload", {}), ["Workload"]),
    (object_of("flow.volcano.sh/v1alpha1", "JobFlow", {}), ["JobFlow"]),
    (
        object_of("batch.volcano.sh/v1alpha1", "Job", {"tasks": [], "runningEstimate": "1h"}),
        ["spec.runningEstimate"],
    ),
    (
        object_of(
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            {"batchScheduler": "volcano", "driver": {"schedulerName": "kai-scheduler"}},
        ),
        ["spec.batchScheduler", "spec.driver.schedulerName"],
    ),
    (
        object_of("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", {"podGroupPolicy": {"a": 1}}),
        ["spec.podGroupPolicy"],
    ),
    (
        object_of("v1", "Namespace", {}, annotations={"scheduling.volcano.sh/queue-name": "q"}),
        ["pods"],
    ),
    (
        pod_of(schedulerName="volcano", nodeSelector={"volcano.sh/nodegroup-name": "a"}),
        ["spec.nodeSelector.volcano.sh/nodegroup-name"],
    ),
    (pod_of({"provreq.kueue.x-k8s.io/a": "b"}), ["provreq.kueue.x-k8s.io/a"]),
    (pod_of({"kai.scheduler/queue": "q", "mps": "true"}), ["mps"]),
    (pod_of(schedulerName="kai-scheduler", priorityClassName="build"), ["priorityClassName"]),
    (
        job_of(annotations={"kueue.x-k8s.io/podset-slice-required-topology-constraints": "no"}),
        ["kueue.x-k8s.io/podset-slice-required-topology-constraints"],
    ),
]


@pytest.mark.parametrize(("document", "keys"), LOST, ids=lambda one: str(one)[:60])
def test_lost_keys_are_listed(document, keys):
    assert rewrite(document)[1] == keys


def test_resources_of_others_are_listed():
    pod = pod_of(schedulerName="volcano")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"volcano.sh/gpu-memory": 1}}
    assert rewrite(pod)[1] == ["spec.containers.resources.limits.volcano.sh/gpu-memory"]


def test_fields_of_a_volcano_task_are_listed_or_translated():
    task = {"name": "t", "replicas": 1, "template": {}, "dependsOn": {"name": ["a"]}, "maxRetry": 7}
    (_, job), lost = rewrite(
        object_of("batch.volcano.sh/v1alpha1", "Job", {"tasks": [task], "maxRetry": 3})
    )
    assert job["spec"]["backoffLimit"] == 7
    assert lost == ["spec.tasks.dependsOn"]


def test_common_words_are_left_alone_where_nothing_names_kai():
    pod = pod_of({"priorityClassName": "build", "mps": "true"})
    assert rewrite(pod) == ([pod], [])


def test_label_of_kai_becomes_the_priority_of_the_pods():
    keys = {"runai/queue": "q", "priorityClassName": "mine"}
    (pod,), lost = rewrite(pod_of(keys))
    assert pod["spec"]["priorityClassName"] == "mine"
    assert pod["metadata"]["labels"] == {QUOTA: "q"}
    assert lost == []


def test_minimum_of_resources_is_kept():
    spec = {"minMember": 2, "minResources": {"cpu": "4"}}
    (group,), lost = rewrite(object_of("scheduling.x-k8s.io/v1alpha1", "PodGroup", spec))
    assert group["spec"] == spec
    assert lost == []


@pytest.mark.parametrize(
    ("flavors", "maximum"),
    [
        ([{"nominalQuota": 4, "borrowingLimit": 1}], "5"),
        ([{"nominalQuota": 4, "borrowingLimit": 1}, {"nominalQuota": 4}], "1P"),
        ([{"nominalQuota": 4, "borrowingLimit": None}], "1P"),
    ],
)
def test_one_flavor_without_a_limit_may_borrow_everything(flavors, maximum):
    documents, _ = rewrite(cluster_queue(*flavors))
    assert documents[-1]["spec"]["max"] == {"cpu": maximum}


@pytest.mark.parametrize(
    ("gpu", "spec"),
    [
        ({"quota": 2}, {"min": {"nvidia.com/gpu": "2"}, "max": {"nvidia.com/gpu": "2"}}),
        (
            {"quota": 2, "limit": 0},
            {"min": {"nvidia.com/gpu": "2"}, "max": {"nvidia.com/gpu": "2"}},
        ),
        (
            {"quota": 2, "limit": -1},
            {"min": {"nvidia.com/gpu": "2"}, "max": {"nvidia.com/gpu": "1P"}},
        ),
        ({"quota": -1, "limit": -1}, {}),
    ],
)
def test_queue_of_kai_without_a_limit_gets_its_quota(gpu, spec):
    assert rewrite(kai_queue(**gpu))[0][0]["spec"] == spec


def test_sub_groups_of_kai_keep_their_minimum_and_layer():
    one = {"name": "a", "minSubGroup": 1}
    two = {"name": "b", "parent": "a", "minMember": 2}
    two["topologyConstraint"] = {"topology": "t", "requiredTopologyLevel": "example.com/rack"}
    (group,), lost = rewrite(kai_group(minSubGroup=1, subGroups=[one, two]))
    assert group["metadata"]["annotations"]["operators.koordinator.sh/sub-groups"] == (
        '{"minSubGroups": 1, "groups": [{"name": "a", "minSubGroups": 1}, '
        '{"name": "b", "parent": "a", "minMember": 2, "layer": "RackLayer"}]}'
    )
    assert lost == []


def test_preemptibility_of_a_group_of_kai_reaches_its_pods():
    pod = pod_of({"kai.scheduler/queue": "q"})
    pod["metadata"]["annotations"] = {"pod-group-name": "x"}
    (_, made), lost = rewrite(kai_group(minMember=1, preemptibility="non-preemptible"), pod)
    assert made["metadata"]["labels"]["quota.scheduling.koordinator.sh/preemptible"] == "false"
    assert lost == []


def test_slices_of_several_layers():
    value = '[{"topology": "a/block", "size": "8"}, {"topology": "a/rack", "size": 4}]'
    key = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
    keys = {"kueue.x-k8s.io/podset-required-topology": "a/zone", key: value}
    (group, _), lost = rewrite(job_of(annotations=keys, parallelism=8))
    assert group["metadata"]["annotations"][
        "gang.scheduling.koordinator.sh/network-topology-spec"
    ] == (
        '{"gatherStrategy": [{"layer": "ZoneLayer", "strategy": "MustGather"}, '
        '{"layer": "BlockLayer", "strategy": "PreferGather", "podCountMultiple": 8}, '
        '{"layer": "RackLayer", "strategy": "PreferGather", "podCountMultiple": 4}]}'
    )
    assert lost == []


def test_minimum_of_a_job_set_of_kai_does_not_count_pods():
    jobs = [
        {
            "name": "a",
            "replicas": 2,
            "template": {"spec": {"parallelism": 4, "completions": 3, "template": {}}},
        }
    ]
    job_set = object_of(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": jobs},
        annotations={"kai.scheduler/batch-min-member": "1"},
    )
    (group, _), lost = rewrite(job_set)
    assert group["spec"]["minMember"] == 6
    assert lost == ["kai.scheduler/batch-min-member"]


def test_evaluators_and_suspended_groups_are_no_members():
    template = {"spec": {"schedulerName": "volcano", "containers": []}}
    roles = {name: {"replicas": 2, "template": template} for name in ("Worker", "Evaluator")}
    tf_job = object_of("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": roles})
    groups = [
        {"replicas": 2, "template": template},
        {"replicas": 3, "suspend": True, "template": template},
    ]
    ray = object_of(
        "ray.io/v1",
        "RayCluster",
        {"headGroupSpec": {"template": template}, "workerGroupSpecs": groups},
    )
    assert [rewrite(one)[0][0]["spec"]["minMember"] for one in (tf_job, ray)] == [2, 3]


def test_runtime_of_the_trainer_gets_our_scheduler():
    job = {"template": {"spec": {"template": {"spec": {"schedulerName": "volcano"}}}}}
    spec = {"template": {"spec": {"replicatedJobs": [job]}}}
    (made,), lost = rewrite(object_of("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", spec))
    pod = made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pod["spec"]["schedulerName"] == "koord-scheduler"
    assert lost == []


def test_key_of_koord_queue_stays():
    job = job_of(annotations={"scheduling.x-k8s.io/suspend": "true"}, suspend=True)
    assert rewrite(job) == ([job], [])


STEPS = ("check that", "use ", "see docs", "correct", "write", "say", "set ", "choose", "migrate ")


@pytest.mark.parametrize(("document", "keys"), LOST)
def test_every_remark_says_what_to_do(document, keys):
    for made in migrate([document]):
        for one in made.lost:
            assert any(step in one.advice for step in STEPS), one.advice
