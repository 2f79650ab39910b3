"""Every recipe of docs/recipes: its gang is complete, placed whole, and heals.

Jobs, StatefulSets and Deployments get their pods from the real controllers. The pods of all other
kinds are made as their controllers make them: see `tests.support.job_controllers`.
"""

import json
from collections import Counter
from functools import partial

import pytest
import yaml
from tests.docs.markdown import parse_page
from tests.support.helm import ROOT

from koord_migrate.rewrite import migrate

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]

RECIPES = ROOT / "docs" / "recipes"
BLOCKS = {
    block.title: block
    for page in sorted(RECIPES.glob("*.md"))
    for block in parse_page(page, page.name)
    if block.language == "yaml"
}
GROUP = "pod-group.scheduling.sigs.k8s.io"
BY_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
RESTARTED_WHOLE = {"leaderworkerset.yaml"}
FROM_OTHERS = {"volcano-job.yaml"}
SAME_NAME = {"kubedl.yaml", "mpijob.yaml", "pytorchjob.yaml", "statefulset.yaml"}
"""Recipes whose lost pods come back under the same name."""
NO_GANG = {"policy.yaml", "quotas.yaml", "sparkapplication.yaml"}
"""Blocks that make no gang by themselves; those about Spark are run by the tests of the pages."""
SLOW = {"jobset.yaml", "trainjob.yaml", "volcano-job.yaml", "waves.yaml"}
"""Recipes that only `-m slow` applies: a Job waits ten seconds before it replaces a pod."""


def load(title):
    documents = [one for one in yaml.safe_load_all(BLOCKS[title].text) if one]
    if title in FROM_OTHERS:
        documents = [new for one in migrate(documents) for new in one.documents]
    return documents


def members_of(cluster, group):
    """Return the pods of a gang that have not ended."""
    return {
        name: pod
        for name, pod in cluster.pods().items()
        if pod["metadata"]["labels"].get(GROUP) == group
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"]["phase"] in {"Pending", "Running"}
    }


def is_bound(cluster, group, minimum):
    pods = members_of(cluster, group).values()
    return sum("nodeName" in pod["spec"] for pod in pods) >= minimum


def placed_together(pods):
    """Return how many of the pods the largest plan has placed."""
    annotations = (pod["metadata"].get("annotations") or {} for pod in pods)
    key = "operators.koordinator.sh/plan"
    plans = (json.loads(one[key])["plan"] for one in annotations if key in one)
    return max(Counter(plans).values())


@pytest.mark.parametrize(
    "title",
    [
        pytest.param(title, marks=pytest.mark.slow) if title in SLOW else title
        for title in sorted(BLOCKS.keys() - NO_GANG - RESTARTED_WHOLE)
    ],
)
def test_gang_of_a_recipe_starts_whole_and_heals(title, cluster, controllers):
    groups = start(load(title), cluster, controllers)
    cluster.expect(lambda: cluster.pods().keys() == cluster.bound().keys(), "all pods are bound")
    name = next(iter(groups))
    lost, *rest = sorted(members_of(cluster, name))
    before = uids_of(cluster, name)
    controllers.lose(lost)
    cluster.expect(lambda: is_healed(cluster, name, before, lost), f"{name} is whole again")
    after = uids_of(cluster, name)
    assert {pod: after.get(pod) for pod in rest} == {pod: before[pod] for pod in rest}
    assert (lost in after) == (title in SAME_NAME)


def start(documents, cluster, controllers):
    """Create objects; return the minimum of each of their gangs."""
    for one in documents:
        controllers.create(one)
    return expect_whole(cluster)


def expect_whole(cluster):
    """Wait until each gang is placed whole; return their minimums."""
    items = cluster.box.client.get(cluster.groups_path)["items"]
    groups = {one["metadata"]["name"]: one["spec"]["minMember"] for one in items}
    assert groups
    for name, minimum in groups.items():
        cluster.expect(partial(is_bound, cluster, name, minimum), f"{name} is bound")
        assert placed_together(members_of(cluster, name).values()) >= minimum
    return groups


def uids_of(cluster, group):
    """Return pod name -> uid, of the members that have a node."""
    pods = members_of(cluster, group).items()
    return {name: pod["metadata"]["uid"] for name, pod in pods if "nodeName" in pod["spec"]}


def is_healed(cluster, group, before, lost):
    uids = uids_of(cluster, group).values()
    return len(uids) == len(before) and before[lost] not in uids


@pytest.mark.parametrize("title", ["jobset.yaml", "rayjob.yaml"])
def test_job_that_is_made_again_waits_as_a_whole_again(title, cluster, controllers):
    group, job = load(title)
    controllers.create(group)
    made = controllers.create(job)
    expect_whole(cluster)
    before = cluster.pods()
    controllers.restart(made)
    expect_whole(cluster)
    assert not before.keys() & cluster.pods().keys()


def test_workers_above_the_minimum_of_an_elastic_job_take_the_room_there_is(cluster, controllers):
    group, job = load("pytorchjob.yaml")
    group["spec"]["minMember"] = 3
    roles = job["spec"]["pytorchReplicaSpecs"]
    roles["Worker"]["replicas"] = 9
    for role in roles.values():
        role["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    start([group, job], cluster, controllers)
    cluster.expect(lambda: len(cluster.bound()) == 8, "every node has a pod")
    cluster.add_nodes(1)
    cluster.expect(lambda: len(cluster.bound()) == 9, "the new node has a pod")


def test_groups_of_a_leader_worker_set_are_gangs_of_their_own(cluster, controllers, frameworks):
    policy = BLOCKS["policy.yaml"].text
    frameworks.kubectl("apply", "-f", "-", stdin=policy)
    try:
        wait_for_policy(cluster)
        (leader_worker_set,) = load("leaderworkerset.yaml")
        made = controllers.create(leader_worker_set)
        cluster.expect(lambda: len(cluster.bound()) == 6, "both groups are bound")
        names = {
            pod["metadata"]["annotations"]["gang.scheduling.koordinator.sh/name"]
            for pod in cluster.pods().values()
        }
        assert names == {"llm-0", "llm-1"}
        before = uids_by_group(cluster)
        expect_whole_groups(cluster)
        controllers.restart_group(made, 0)
        cluster.expect(lambda: len(cluster.bound()) == 6, "the group is bound again")
        after = uids_by_group(cluster)
        assert before["1"] == after["1"]
        assert not before["0"] & after["0"]
        expect_whole_groups(cluster)
    finally:
        frameworks.kubectl("delete", "-f", "-", stdin=policy)


def expect_whole_groups(cluster):
    pods = cluster.pods().values()
    for group in ("0", "1"):
        members = [one for one in pods if one["metadata"]["labels"][BY_INDEX] == group]
        assert placed_together(members) == len(members) == 3


def uids_by_group(cluster):
    found: dict[str, set[str]] = {}
    for pod in cluster.pods().values():
        group = pod["metadata"]["labels"][BY_INDEX]
        found.setdefault(group, set()).add(pod["metadata"]["uid"])
    return found


def wait_for_policy(cluster):
    """The API server takes a moment to notice a policy."""
    prefix = "leaderworkerset.sigs.k8s.io"
    pod = {
        "metadata": {
            "name": "probe",
            "labels": {BY_INDEX: "0", f"{prefix}/name": "probe"},
            "annotations": {f"{prefix}/size": "1"},
        },
        "spec": {
            "schedulingGates": [{"name": "operators.koordinator.sh/placement"}],
            "containers": [{"name": "c", "image": "x"}],
        },
    }

    def is_in_force():
        made = cluster.box.client.create(f"{cluster.pods_path}?dryRun=All", pod)
        return "gang.scheduling.koordinator.sh/name" in made["metadata"]["annotations"]

    cluster.expect(is_in_force, "the policy is in force")
