"""What is reflected follows from which operators run: what each reads, and nothing twice."""

import pytest

from koord.runtime.cluster import (
    ALL_KINDS,
    NATIVE_POD_GROUPS,
    NODES,
    POD_GROUPS,
    PODS,
    PROFILES,
    QUOTAS,
    TOPOLOGIES,
)
from koord.runtime.wiring import OPERATORS, PLACEMENT, POD_GROUP, PROFILE, QUOTA, TOPOLOGY, kinds_of


@pytest.mark.parametrize(
    ("operators", "kinds"),
    [
        (OPERATORS, ALL_KINDS),
        ((PLACEMENT,), tuple(kind for kind in ALL_KINDS if kind != PROFILES)),
        ((PROFILE,), (NODES, QUOTAS, PROFILES)),
        ((POD_GROUP,), (PODS, NODES, POD_GROUPS, TOPOLOGIES)),
        ((QUOTA,), (PODS, NODES, POD_GROUPS, QUOTAS)),
        ((TOPOLOGY,), (NODES, TOPOLOGIES)),
        ((QUOTA, TOPOLOGY), (PODS, NODES, POD_GROUPS, QUOTAS, TOPOLOGIES)),
        ((TOPOLOGY, QUOTA, POD_GROUP), (PODS, NODES, POD_GROUPS, QUOTAS, TOPOLOGIES)),
        (("device",), ()),
    ],
)
def test_kinds_are_those_of_all_operators_that_run(
    operators: tuple[str, ...], kinds: tuple[str, ...]
) -> None:
    assert kinds_of(operators) == kinds
    native = (NATIVE_POD_GROUPS,) if POD_GROUPS in kinds else ()
    assert kinds_of(operators, has_native=True) == (*kinds, *native)
