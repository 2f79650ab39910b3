"""The roles in the files: what operators read, nothing by wildcard, few grants in all."""

import pytest

from koord.domains.registry import KINDS
from koord.runtime.registry import OPERATORS, REGISTERED, kinds_of

READ = {"get", "list", "watch"}
REFLECT = ("list", "watch")
RESOURCE_OF = {operator.name: operator.resource for operator in REGISTERED}


def grants_of(role):
    """Return the role's grants as (group, resource, verb)."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_there_is_a_role_for_every_operator(cluster_roles):
    assert {f"koord-{name}" for name in OPERATORS} <= set(cluster_roles)


READ_OTHERWISE = {
    "placement": {
        ("", "pods", "get"),
        ("", "nodes", "get"),
        ("policy", "poddisruptionbudgets", "list"),
        ("coordination.k8s.io", "leases", "get"),
        ("scheduling.koordinator.sh", "reservations", "get"),
        ("metrics.k8s.io", "nodes", "list"),
        ("metrics.k8s.io", "pods", "list"),
    },
    "defragmentationpolicy": {
        ("policy", "poddisruptionbudgets", "list"),
        ("scheduling.koordinator.sh", "podmigrationjobs", "list"),
    },
    "rebalancepolicy": {
        ("policy", "poddisruptionbudgets", "list"),
        ("scheduling.koordinator.sh", "podmigrationjobs", "list"),
    },
    "podmigrationjob": {
        ("", "pods", "get"),
        ("scheduling.koordinator.sh", "podmigrationjobs", "get"),
        ("scheduling.sigs.k8s.io", "podgroups", "get"),
        ("apps", "deployments", "get"),
        ("apps", "replicasets", "get"),
        ("apps", "statefulsets", "get"),
        ("batch", "jobs", "get"),
        ("", "replicationcontrollers", "get"),
        ("coordination.k8s.io", "leases", "get"),
    },
}
"""Grants to read that no reflector needs."""


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_may_read_exactly_the_kinds_it_reflects(cluster_roles, operator):
    kinds = {(kind.group, kind.plural) for kind in kinds_of([operator])}
    if (resource := RESOURCE_OF[operator]) is not None:
        kinds.add((resource.names.group, resource.names.plural))
    granted = grants_of(cluster_roles[f"koord-{operator}"])
    read = {grant for grant in granted if grant[2] in READ}
    expected = {(group, plural, verb) for group, plural in kinds for verb in REFLECT}
    assert read == expected | READ_OTHERWISE.get(operator, set())


def test_users_may_list_every_kind_that_is_planned_with(cluster_roles):
    granted = grants_of(cluster_roles["koord-user"])
    assert {(kind.group, kind.plural, "list") for kind in KINDS} <= granted


def test_nothing_is_granted_by_wildcard(cluster_roles):
    for name, role in cluster_roles.items():
        for grant in grants_of(role):
            assert not any("*" in part for part in grant), name
        assert not any("nonResourceURLs" in rule for rule in role["rules"]), name


def test_no_role_reads_secrets_or_impersonates(cluster_roles):
    forbidden = {"secrets", "serviceaccounts/token", "pods/exec", "pods/attach", "nodes/proxy"}
    verbs = {"impersonate", "escalate", "bind", "approve", "sign"}
    for name, role in cluster_roles.items():
        granted = grants_of(role)
        assert not {resource for _, resource, _ in granted} & forbidden, name
        assert not {verb for _, _, verb in granted} & verbs, name


def test_all_roles_together_are_small(cluster_roles):
    pairs = {
        (group, resource, verb)
        for role in cluster_roles.values()
        for group, resource, verb in grants_of(role)
    }
    assert 0 < len(pairs) <= 104


def test_only_placement_writes_pods(cluster_roles):
    writers = {
        name
        for name, role in cluster_roles.items()
        for group, resource, verb in grants_of(role)
        if group == "" and verb not in READ and resource != "nodes/status"
    }
    assert writers == {"koord-placement"}


BESIDES = {
    "elasticquota": {("elasticquotas", "patch")},
    "elasticquotaprofile": {("elasticquotas", "create"), ("elasticquotas", "patch")},
    "device": {("nodes/status", "patch")},
    "reservation": {("reservations", "delete")},
    "rebalancepolicy": {("podmigrationjobs", "create")},
    "podmigrationjob": {
        ("podmigrationjobs", "patch"),
        ("podmigrationjobs", "delete"),
        ("reservations", "create"),
        ("reservations", "delete"),
    },
    "defragmentationpolicy": {("podmigrationjobs", "create")},
}
"""Writes other than of the own status: annotations of quotas, root quotas of profiles, what devices
add to their nodes, reservations for moved pods, and the deletion of what is over."""
EVENTS = {("events", "create")}


@pytest.mark.parametrize("operator", [name for name in OPERATORS if name != "placement"])
def test_the_others_write_one_status_each(cluster_roles, operator):
    written = {
        (resource, verb)
        for _, resource, verb in grants_of(cluster_roles[f"koord-{operator}"])
        if verb not in READ
    }
    besides = BESIDES.get(operator, set()) | EVENTS
    statuses = written - besides
    assert written - statuses == besides
    ((resource, verb),) = statuses
    assert (resource.partition("/")[2], verb) == ("status", "patch")


def test_users_may_not_raise_their_own_quota(cluster_roles):
    written = {
        resource
        for name in ("koord-view", "koord-edit", "koord-user")
        for _, resource, verb in grants_of(cluster_roles[name])
        if verb not in READ
    }
    assert written == {"podgroups"}
