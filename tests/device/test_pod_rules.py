"""Requests of containers: what Koordinator's webhook changes, and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.device.request import describe_problems, find_problems, normalise
from koord.core.model.device_names import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KOORD_GPU,
    NPU_CORE,
    NVIDIA_GPU,
)

FIELD = "pod.spec.containers[*].resources.requests"
GI = 1 << 30

requests_drawn = st.dictionaries(
    st.sampled_from(
        [KOORD_GPU, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, NPU_CORE, "cpu"]
    ),
    st.sampled_from([0, 1, 2, 50, 70, 100, 101, 150, 200, 800]),
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({KOORD_GPU: 200}, {GPU_CORE: 200, GPU_MEMORY_RATIO: 200, GPU_SHARED: 2}),
        ({KOORD_GPU: 50}, {GPU_CORE: 50, GPU_MEMORY_RATIO: 50, GPU_SHARED: 1}),
        (
            {GPU_CORE: 100, GPU_MEMORY: 8000, GPU_MEMORY_RATIO: 200},
            {GPU_CORE: 100, GPU_MEMORY: 8000, GPU_MEMORY_RATIO: 200, GPU_SHARED: 2},
        ),
        (
            {GPU_CORE: 100, GPU_MEMORY: 4000, GPU_MEMORY_RATIO: 50},
            {GPU_CORE: 100, GPU_MEMORY: 4000, GPU_MEMORY_RATIO: 50, GPU_SHARED: 1},
        ),
        (
            {GPU_CORE: 200, GPU_MEMORY: 64 * GI},
            {GPU_CORE: 200, GPU_MEMORY: 64 * GI, GPU_SHARED: 2},
        ),
        ({GPU_MEMORY: GI}, {GPU_MEMORY: GI, GPU_SHARED: 1}),
        ({GPU_MEMORY_RATIO: 150}, {GPU_MEMORY_RATIO: 150, GPU_SHARED: 1}),
        ({GPU_MEMORY_RATIO: 200, GPU_SHARED: 4}, {GPU_MEMORY_RATIO: 200, GPU_SHARED: 4}),
        ({"kubernetes.io/gpu": 100}, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_SHARED: 1}),
        ({NVIDIA_GPU: 2, "cpu": 1000}, {NVIDIA_GPU: 2, "cpu": 1000}),
        ({}, {}),
    ],
)
def test_normal_form(before: dict[str, int], after: dict[str, int]) -> None:
    assert normalise(before) == after
    assert normalise(before, is_strict=True) == after


def test_whole_npus_stay_valid() -> None:
    whole = {NPU_CORE: 40, GPU_MEMORY_RATIO: 200}
    assert normalise(whole) == whole
    assert normalise(whole, is_strict=True) == whole | {GPU_SHARED: 2}


def test_contradictions_stay_visible() -> None:
    both = {KOORD_GPU: 100, GPU_CORE: 50}
    assert normalise(both) == both
    assert normalise(both, is_strict=True) == {
        GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_SHARED: 1,
    }  # fmt: skip


@given(requests=requests_drawn, is_strict=st.booleans())
def test_normal_form_is_final_and_keeps_other_resources(
    *, requests: dict[str, int], is_strict: bool
) -> None:
    before = dict(requests)
    normal = normalise(requests, is_strict=is_strict)
    assert normalise(normal, is_strict=is_strict) == normal
    assert normal.get("cpu") == requests.get("cpu")
    assert requests == before


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ({KOORD_GPU: 200}, ""),
        ({KOORD_GPU: 70}, ""),
        ({NVIDIA_GPU: 3}, ""),
        ({GPU_CORE: 33}, ""),
        (
            {KOORD_GPU: 100, GPU_SHARED: 1},
            f"{FIELD}: Forbidden: declare GPU and GPU share at same time",
        ),
        ({KOORD_GPU: 0}, f'{FIELD}: Invalid value: "0": the requested GPU must be greater than'),
        (
            {KOORD_GPU: 101},
            f'{FIELD}: Invalid value: "101": the requested GPU must be percentage of 100',
        ),
        ({GPU_SHARED: 2}, f"{FIELD}: Forbidden: GPU memory and GPU memory ratio all is zero"),
        (
            {GPU_MEMORY: 4000, GPU_MEMORY_RATIO: 100, GPU_SHARED: 1},
            f"{FIELD}: Forbidden: declare GPU memory and GPU memory ratio at same time",
        ),
        (
            {GPU_CORE: 101, GPU_MEMORY_RATIO: 100, GPU_SHARED: 2},
            f'{FIELD}: Invalid value: "101": the requested gpuCore must multiple of shared',
        ),
        (
            {GPU_MEMORY_RATIO: 101, GPU_SHARED: 2},
            f'{FIELD}: Invalid value: "101": the requested gpuMemoryRatio must multiple of shared',
        ),
        ({NPU_CORE: 8, GPU_SHARED: 1}, ""),
        ({GPU_MEMORY_RATIO: 100, GPU_SHARED: 2}, ""),
    ],
)
def test_faults_in_words_of_the_webhook(requests: dict[str, int], reason: str) -> None:
    text = describe_problems(find_problems(requests))
    assert text.startswith(reason)
    assert bool(text) == bool(reason)


def test_several_faults_are_all_reported() -> None:
    text = describe_problems(find_problems({GPU_SHARED: 0}))
    assert text == (
        f'[{FIELD}: Invalid value: "0": the requested GPU must be greater than zero, '
        f"{FIELD}: Forbidden: GPU memory and GPU memory ratio all is zero]"
    )


@given(requests_drawn)
def test_checks_never_fail(requests: dict[str, int]) -> None:
    describe_problems(find_problems(requests))
