"""What a tenant says of owners decides about its own pods alone, and costs in proportion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.owners.frameworks import JOBSET, TRAINING, Jobs, owned, owned_by, reference, replica
from tests.owners.test_worked_examples import LLM, job, jobset, lws_group, pytorch, replicated
from tests.support.laws import examples
from tests.support.work import grows_with

from koord.core.model.constraints import PodLabels
from koord.core.model.gangs import GangMembership, GangSource, GangSpec
from koord.core.model.pods import OwnerReference
from koord.core.owners.model import GroupSize

if TYPE_CHECKING:
    from collections.abc import Callable

PAIR = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}}
VICTIM = pytorch("hello", PAIR)


def spark(allocation: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "bad"},
        "spec": {"dynamicAllocation": allocation},
    }


def restarted(rules: Any) -> dict[str, Any]:
    role = replicated("w", 1, 2, job={"backoffLimit": 0})
    return jobset(role, failurePolicy={"rules": rules})


UIDS = ["uid-hello", "uid-mine", "uid-hello-master-0", "uid-x0", ""]
ROLES = ["master", "worker", "", "x"]
ALMOST_IN_PROPORTION = 1.8
Event = tuple[Any, ...]


class Tenants:
    """A job of one namespace that lacks a member, and what somebody does in another one."""

    def __init__(self) -> None:
        self.jobs = Jobs(nodes=64).own_objects(VICTIM)
        self.jobs.pods(replica(VICTIM, "master", 0))
        self.key, self.spec = (
            self.jobs.gang_of("hello-master-0"),
            self.jobs.spec_of("hello-master-0"),
        )

    def pod(  # noqa: PLR0917 - all that a pod may say
        self, name: str, uid: str, role: str, index: str, of: str, gang: str
    ) -> None:
        labels = {f"{TRAINING}replica-type": role, f"{TRAINING}replica-index": index}
        owners = (OwnerReference(of, "PyTorchJob", "kubeflow.org/v1", uid, True),) if uid else ()
        pod = replace(
            make_pod(f"evil/{name}").gpu(1).build(),
            profile=PodLabels("evil", labels),
            owners=owners,
        )
        if gang:
            name_of_gang = self.key.partition("/")[2] if gang == "theirs" else gang
            key = f"evil/{name_of_gang}"
            spec = GangSpec(key, 2, 2, source=GangSource.ANNOTATION, group=(key, self.key))
            pod = replace(pod, gang=GangMembership(key, GangSource.ANNOTATION, spec))
        self.jobs.pods(pod)

    def job(self, name: str, replicas: int, least: int, *, suspended: bool) -> None:
        policy = {"schedulingPolicy": {"minAvailable": least}, "suspend": suspended}
        spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas}}, "runPolicy": policy}
        mine = pytorch(name, spec)
        mine["metadata"] |= {"namespace": "evil", "uid": "uid-mine"}
        self.jobs.own_objects(mine)

    def remove(self, name: str) -> None:
        pod = self.jobs.state.pod_by_key(f"evil/{name}")
        if pod is not None:
            self.jobs.state.remove_pod(pod.uid)


events = st.one_of(
    st.tuples(
        st.just("pod"), st.sampled_from(["x0", "x1", "hello-worker-0"]), st.sampled_from(UIDS),
        st.sampled_from(ROLES), st.sampled_from(["0", "1", "99999999"]),
        st.sampled_from(["hello", "mine"]), st.sampled_from(["", "", "theirs", "mine"]),
    ),
    st.tuples(
        st.just("job"), st.sampled_from(["hello", "mine"]), st.sampled_from([0, 1, 2, 99]),
        st.sampled_from([0, 1, 2, 99]), st.booleans(),
    ),
    st.tuples(st.just("remove"), st.sampled_from(["x0", "x1", "hello-worker-0"])),
)  # fmt: skip


@given(happens=st.lists(events, min_size=1, max_size=8))
@settings(max_examples=examples(12), deadline=None)
def test_what_is_written_in_another_namespace_changes_no_gang(happens: list[Event]) -> None:
    tenants = Tenants()
    jobs = tenants.jobs
    for what, *terms in happens:
        if what == "job":
            tenants.job(*terms[:3], suspended=terms[3])
        else:
            getattr(tenants, what)(*terms)
        assert "hello-master-0" not in jobs.run()
        assert jobs.gang_of("hello-master-0") == tenants.key
        assert jobs.spec_of("hello-master-0") == tenants.spec
        members = jobs.state.gangs.members(tenants.key).values()
        assert {pod.namespace for pod in members} == {"default"}
    jobs.pods(replica(VICTIM, "worker", 0))
    assert {"hello-master-0", "hello-worker-0"} <= set(jobs.run())


def test_an_annotation_that_says_the_name_of_a_derived_gang_joins_it_not() -> None:
    """In one namespace, too: the name of a gang that was found is no name to be given."""
    jobs = Jobs(nodes=2).own_objects(VICTIM).pods(replica(VICTIM, "master", 0))
    key, spec = jobs.gang_of("hello-master-0"), jobs.spec_of("hello-master-0")
    declared = GangSpec(key, 1, 1, source=GangSource.ANNOTATION, group=(key,))
    liar = make_pod("liar").gpu(8).build()
    jobs.pods(replace(liar, gang=GangMembership(key, GangSource.ANNOTATION, declared)))
    assert jobs.spec_of("hello-master-0").min_member == spec.min_member == 2
    assert "hello-master-0" not in jobs.run()


MANY = [{"action": "x"}] * 5000
WHOLE = {"completionMode": "Indexed", "parallelism": 2, "completions": 2}
LIES: dict[str, dict[str, Any]] = {
    "roles that are text": pytorch("bad", {"pytorchReplicaSpecs": "x"}),
    "a role that is a list": pytorch("bad", {"pytorchReplicaSpecs": {"Worker": []}}),
    "thousands of roles": pytorch(
        "bad", {"pytorchReplicaSpecs": {f"r{at}": {} for at in range(3000)}}
    ),
    "a role twice": pytorch("bad", {"pytorchReplicaSpecs": {"Worker": {}, "worker": {}}}),
    "a long name": pytorch("bad", {"pytorchReplicaSpecs": {"W" * 5000: {}}}),
    "a number of 40 digits": pytorch(
        "bad", {"pytorchReplicaSpecs": {"Worker": {"replicas": 10**40}}}
    ),
    "executors that are text": spark({"enabled": True, "initialExecutors": "many"}),
    "a minimum that is text": spark({"enabled": True, "initialExecutors": 3, "minExecutors": "1"}),
    "thousands of rules": restarted(MANY),
    "rules that are text": restarted("RestartJob"),
    "rules that are nothing": restarted([None, 1, []]),
    "a role after itself": jobset(replicated("w", 1, 2, dependsOn=[{"name": "w"}])),
    "a Job that owns itself": job("bad", WHOLE, ownerReferences=[reference(job("bad", WHOLE))]),
    "more failures than indexes": {
        **job("bad", WHOLE), "status": {"failedIndexes": "0-999999999", "succeeded": -3},
    },
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_an_owner_says_keeps_no_pod_of_others_waiting(lie: dict[str, Any]) -> None:
    jobs = Jobs(nodes=4).own_objects(lie, VICTIM)
    labels = {f"{TRAINING}replica-type": "worker", f"{JOBSET}replicatedjob-name": "w"}
    jobs.pods(*(owned(f"bad-{at}", lie, {**labels, "spark-role": "executor"}) for at in range(2)))
    ran = jobs.run()
    if not ran:  # held, with a reason that is short
        assert 0 < len(jobs.why("bad-0").text()) < 400
    jobs.pods(replica(VICTIM, "master", 0), replica(VICTIM, "worker", 0))
    assert {"hello-master-0", "hello-worker-0"} <= set(jobs.run())


@pytest.mark.parametrize("size", [1, 9_999_999])
def test_a_group_that_lies_about_its_size_is_the_only_one_that_suffers(size: int) -> None:
    sets, pods = lws_group(LLM, 0)
    lying = [replace(pod, extensions=(("owners", GroupSize(size)),)) for pod in pods]
    more, other = lws_group(LLM, 1)
    jobs = Jobs(nodes=8).own_objects(LLM, *sets, *more).pods(*lying, *other)
    started = {pod.name for pod in other}
    assert set(jobs.run()) - {pod.name for pod in lying} == started


def roles_that_change(count: int) -> Callable[[], object]:
    """Pods of one owner whose labels say another role each time."""
    jobs, at = Jobs(nodes=1), iter(range(10**6))
    mine = pytorch("mine", {"pytorchReplicaSpecs": {"Worker": {"replicas": 9999}}})
    jobs.own_objects(mine)

    def change() -> object:
        role = f"r{next(at)}"
        jobs.pods(*(replica(mine, "worker", n, uid=f"u{n}") for n in range(count)))
        for n in range(count):
            pod = jobs.raw(jobs.pod(f"mine-worker-{n}"))
            labels = {f"{TRAINING}replica-type": role, f"{TRAINING}replica-index": "0"}
            jobs.pods(replace(pod, profile=PodLabels("default", labels)))
        return jobs.absorb()

    change()
    return change


def owners_that_are_suspended_and_resumed(count: int) -> Callable[[], object]:
    """As many owners of one pod as one likes, all of which stop and go on."""
    jobs = Jobs(nodes=1)
    running = [pytorch(f"j{at}", PAIR) for at in range(count)]
    stopped = [pytorch(f"j{at}", {**PAIR, "runPolicy": {"suspend": True}}) for at in range(count)]
    jobs.own_objects(*running)
    jobs.pods(*(replica(each, "worker", 0) for each in running))
    jobs.absorb()

    def toggle() -> object:
        jobs.own_objects(*stopped)
        jobs.own_objects(*running)
        return jobs.absorb()

    return toggle


def pods_that_own_each_other(count: int) -> Callable[[], object]:
    """A long row of pods, each of which is owned by the one before, and the first changes."""
    jobs = Jobs(nodes=1)
    pods = [make_pod("p0").gpu(1).build()]
    for at in range(1, count):
        above = OwnerReference(f"p{at - 1}", "Pod", "v1", pods[-1].uid, True)
        pods.append(replace(make_pod(f"p{at}").gpu(1).build(), owners=(above,)))
    jobs.pods(*pods)
    jobs.absorb()

    def change() -> object:
        for pod in pods:
            owner = owned_by(VICTIM)
            jobs.pods(replace(pod, owners=(owner,)))
            jobs.pods(pod)
        return jobs.absorb()

    return change


@pytest.mark.parametrize(
    "make", [roles_that_change, owners_that_are_suspended_and_resumed, pods_that_own_each_other]
)
def test_changes_cost_in_proportion(make: Callable[[int], Callable[[], object]]) -> None:
    assert grows_with(20, make) < ALMOST_IN_PROPORTION
