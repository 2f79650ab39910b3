"""The table of kinds: which operators read what, and how each kind is addressed."""

import pytest

from koord.api.crdgen import RESOURCES
from koord.api.nodeslo import NodeSLO
from koord.domains.balance import REBALANCE_POLICIES
from koord.domains.colocation import COLOCATION_POLICIES
from koord.domains.defrag import DEFRAG_POLICIES
from koord.domains.device import DEVICES, RESOURCE_CLAIMS
from koord.domains.gang import NATIVE_POD_GROUPS, POD_GROUPS
from koord.domains.migration import POD_MIGRATION_JOBS
from koord.domains.placement import NODES, PODS
from koord.domains.profiles import COLOCATION_PROFILES
from koord.domains.quota import PROFILES, QUOTAS
from koord.domains.topology import TOPOLOGIES
from koord.kube.kind import AnyKind
from koord.operators.names import DEVICE, PLACEMENT, POD_GROUP, PROFILE, QUOTA, TOPOLOGY
from koord.runtime.registry import ALL_KINDS, OPERATORS, REGISTERED, kinds_of, required_resources

EVERYWHERE = set(ALL_KINDS)


@pytest.mark.parametrize(
    ("operators", "kinds"),
    [
        (OPERATORS, EVERYWHERE),
        (
            (PLACEMENT,),
            EVERYWHERE
            - {PROFILES, REBALANCE_POLICIES, POD_MIGRATION_JOBS, DEFRAG_POLICIES}
            - {COLOCATION_POLICIES, COLOCATION_PROFILES},
        ),
        ((PROFILE,), {NODES, QUOTAS, PROFILES}),
        ((POD_GROUP,), {PODS, NODES, POD_GROUPS, TOPOLOGIES}),
        ((QUOTA,), {PODS, NODES, POD_GROUPS, QUOTAS}),
        ((TOPOLOGY,), {NODES, TOPOLOGIES}),
        ((QUOTA, TOPOLOGY), {PODS, NODES, POD_GROUPS, QUOTAS, TOPOLOGIES}),
        ((DEVICE,), {PODS, NODES, DEVICES, RESOURCE_CLAIMS}),
    ],
)
def test_process_reads_the_kinds_of_its_operators(
    operators: tuple[str, ...], kinds: set[AnyKind]
) -> None:
    native = {NATIVE_POD_GROUPS} if POD_GROUPS in kinds else set()
    assert set(kinds_of(operators)) == kinds | native


def test_kinds_are_read_by_registered_operators() -> None:
    assert set(kinds_of(OPERATORS)) == set(ALL_KINDS)


def test_names_are_unique() -> None:
    assert (
        len({kind.name for kind in ALL_KINDS})
        == len({kind.path for kind in ALL_KINDS})
        == len(ALL_KINDS)
    )


def test_kinds_of_custom_resources_are_addressed_as_their_crds_say() -> None:
    names = {one.names.crd_name: one.names for one in RESOURCES}
    kinds = [kind for kind in ALL_KINDS if kind.resource in names]
    assert kinds
    for kind in kinds:
        crd = names[kind.resource]
        assert (kind.api_version, kind.is_namespaced) == (crd.api_version, crd.namespaced)


def test_every_custom_resource_is_validated_by_one_operator() -> None:
    validated = [operator.resource for operator in REGISTERED if operator.resource]
    # Nobody but us writes NodeSLOs.
    assert sorted([*validated, NodeSLO], key=str) == sorted(RESOURCES, key=str)


def test_placement_requires_pod_groups_and_quotas_only() -> None:
    group = "scheduling.sigs.k8s.io/v1alpha1"
    assert required_resources([PLACEMENT]) == [(group, "podgroups"), (group, "elasticquotas")]
