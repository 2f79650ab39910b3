"""The effective request of a pod, against the rules of Kubernetes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.model.pod_requests import (
    InitContainer,
    effective_requests,
    resized_requests,
    simple_requests,
)
from koord.core.model.units import AMOUNT_LIMIT


def side(**amounts: int) -> InitContainer:
    return InitContainer(amounts, is_sidecar=True)


def init(**amounts: int) -> InitContainer:
    return InitContainer(amounts)


CASES = {
    "nothing asked takes a pod slot": ([], [], {}, {}, {}),
    "containers add up": (
        [{"cpu": 1}, {"cpu": 2, "memory": 5}],
        [],
        {},
        {},
        {"cpu": 3, "memory": 5},
    ),
    "the dearest init container": ([{"cpu": 1}], [init(cpu=7), init(cpu=4)], {}, {}, {"cpu": 7}),
    "init below the sum": ([{"cpu": 9}], [init(cpu=7)], {}, {}, {"cpu": 9}),
    "init peaks count per resource": (
        [{"cpu": 5, "memory": 1}],
        [init(cpu=1, memory=8)],
        {},
        {},
        {"cpu": 5, "memory": 8},
    ),
    "sidecars run beside the containers": ([{"cpu": 3}], [side(cpu=2)], {}, {}, {"cpu": 5}),
    "sidecars started before an init container count with it": (
        [{"cpu": 1}],
        [side(cpu=2), init(cpu=10)],
        {},
        {},
        {"cpu": 12},
    ),
    "sidecars started after an init container do not": (
        [{"cpu": 1}],
        [init(cpu=10), side(cpu=2)],
        {},
        {},
        {"cpu": 10},
    ),
    "several sidecars and peaks": (
        [{"cpu": 1}],
        [side(cpu=2), init(cpu=3), side(cpu=4), init(cpu=5)],
        {},
        {},
        {"cpu": 11},
    ),
    "overhead comes on top of the peak": (
        [{"cpu": 1}],
        [init(cpu=4)],
        {"cpu": 1, "memory": 2},
        {},
        {"cpu": 5, "memory": 2},
    ),
    "pod level replaces the sum, overhead still on top": (
        [{"cpu": 9, "memory": 9}],
        [],
        {"cpu": 1},
        {"cpu": 4},
        {"cpu": 5, "memory": 9},
    ),
    "pod level counts for huge pages": (
        [{"hugepages-2Mi": 4}],
        [],
        {},
        {"hugepages-2Mi": 8},
        {"hugepages-2Mi": 8},
    ),
    "pod level does not count for devices": (
        [{"nvidia.com/gpu": 2}],
        [],
        {},
        {"nvidia.com/gpu": 1},
        {"nvidia.com/gpu": 2},
    ),
    "zeros leave no trace": ([{"nvidia.com/gpu": 0}], [], {}, {}, {}),
    "negative amounts are nothing": ([{"cpu": -5}, {"cpu": 3}], [init(cpu=-1)], {}, {}, {"cpu": 3}),
    "sums are cut": ([{"memory": AMOUNT_LIMIT}] * 3, [], {}, {}, {"memory": AMOUNT_LIMIT}),
}


@pytest.mark.parametrize("name", CASES)
def test_effective_requests(name: str) -> None:
    containers, inits, overhead, pod_level, expected = CASES[name]
    got = effective_requests(containers, inits, overhead=overhead, pod_level=pod_level)
    assert dict(got) == {**expected, "pods": 1}
    assert list(got) == sorted(got)


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "x/gpu"]), st.integers(0, 100))
inits = st.lists(st.builds(InitContainer, amounts, st.booleans()), max_size=4)


@given(st.lists(amounts, max_size=4), inits)
def test_effective_requests_cover_every_moment(
    containers: list[dict[str, int]], init_containers: list[InitContainer]
) -> None:
    total = dict(effective_requests(containers, init_containers))
    for resource in ("cpu", "memory", "x/gpu"):
        sidecars = 0
        moments = []
        for container in init_containers:
            moments.append(sidecars + container.requests.get(resource, 0))
            if container.is_sidecar:
                sidecars += container.requests.get(resource, 0)
        moments.append(sidecars + sum(c.get(resource, 0) for c in containers))
        assert total.get(resource, 0) == max(moments)


@pytest.mark.parametrize(
    ("spec", "allocated", "actual", "is_infeasible", "expected"),
    [
        ({"cpu": 4}, {"cpu": 2}, {"cpu": 2}, False, {"cpu": 4}),
        ({"cpu": 1}, {"cpu": 2}, {"cpu": 3}, False, {"cpu": 3}),
        ({"cpu": 9}, {"cpu": 2}, {"cpu": 3}, True, {"cpu": 3}),
        ({"memory": 9}, {}, {}, False, {"memory": 9}),
        ({}, {"cpu": 2}, {}, False, {"cpu": 2}),
    ],
)
def test_resized_requests(
    spec: dict[str, int],
    allocated: dict[str, int],
    actual: dict[str, int],
    is_infeasible: bool,  # noqa: FBT001
    expected: dict[str, int],
) -> None:
    assert resized_requests(spec, allocated, actual, is_infeasible=is_infeasible) == expected


@pytest.mark.parametrize(
    ("containers", "inits", "cpu"),
    [
        ([2, 3], [], 5),
        ([2], [InitContainer({"cpu": 10})], 10),
        ([2], [InitContainer({"cpu": 1}, is_sidecar=True)], 3),
        ([2], [InitContainer({"cpu": 1}, is_sidecar=True), InitContainer({"cpu": 5})], 5),
        ([2], [InitContainer({"cpu": 5}), InitContainer({"cpu": 1}, is_sidecar=True)], 5),
    ],
)
def test_simple_requests(containers: list[int], inits: list[InitContainer], cpu: int) -> None:
    assert simple_requests([{"cpu": one} for one in containers], inits) == {"cpu": cpu}
