"""The table of kinds: which operators read what, and how each kind is addressed."""

import pytest

from koord.api.crdgen import RESOURCES
from koord.kube.kinds import (
    DEVICE,
    DEVICES,
    KINDS,
    NATIVE_POD_GROUPS,
    NODES,
    PLACEMENT,
    POD_GROUP,
    POD_GROUPS,
    PODS,
    PROFILE,
    PROFILES,
    QUOTA,
    QUOTAS,
    RESOURCE_CLAIMS,
    TOPOLOGIES,
    TOPOLOGY,
    AnyKind,
    kinds_of,
)
from koord.runtime.registry import DOMAINS, OPERATORS, required_resources

EVERYWHERE = set(KINDS)


@pytest.mark.parametrize(
    ("operators", "kinds"),
    [
        (OPERATORS, EVERYWHERE),
        ((PLACEMENT,), EVERYWHERE - {PROFILES}),
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
    assert {name for kind in KINDS for name in kind.read_by} <= set(OPERATORS)


def test_names_are_unique() -> None:
    assert len({kind.name for kind in KINDS}) == len({kind.path for kind in KINDS}) == len(KINDS)


def test_kinds_of_custom_resources_are_addressed_as_their_crds_say() -> None:
    names = {one.names.crd_name: one.names for one in RESOURCES}
    kinds = [kind for kind in KINDS if kind.resource in names]
    assert kinds
    for kind in kinds:
        crd = names[kind.resource]
        assert (kind.api_version, kind.is_namespaced) == (crd.api_version, crd.namespaced)


def test_every_custom_resource_is_validated_by_one_operator() -> None:
    validated = [one.resource for domain in DOMAINS for one in domain.operators if one.resource]
    assert sorted(validated, key=str) == sorted(RESOURCES, key=str)


def test_placement_requires_pod_groups_and_quotas_only() -> None:
    group = "scheduling.sigs.k8s.io/v1alpha1"
    assert required_resources([PLACEMENT]) == [(group, "podgroups"), (group, "elasticquotas")]
