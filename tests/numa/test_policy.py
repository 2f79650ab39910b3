"""NUMA policies: which NUMA nodes a pod uses, and how its requests are divided among them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.model.zone_hints import MAX_SETS, NumaHint, list_sets, make_hints
from koord.core.numa.policy import (
    NO_NUMA_NODES,
    POLICY_MISMATCH,
    NumaExclusive,
    NumaOccupancy,
    NumaPolicy,
    PolicyCause,
    align,
    choose_exclusive,
    choose_policy,
    find_occupancy,
    merge_hints,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BEST_EFFORT, RESTRICTED, SINGLE = NumaPolicy
REQUIRED, PREFERRED = NumaExclusive


def prefer(nodes: int | None, score: int = 0) -> NumaHint:
    return NumaHint(nodes, is_preferred=True, score=score)


def offer(nodes: int | None, score: int = 0) -> NumaHint:
    return NumaHint(nodes, is_preferred=False, score=score)


# Which policy applies


@pytest.mark.parametrize(
    ("pod", "label", "kubelet", "policy"),
    [
        (None, None, None, None),
        (RESTRICTED, None, None, RESTRICTED),
        (None, SINGLE, None, SINGLE),
        (None, None, SINGLE, SINGLE),
        (None, RESTRICTED, SINGLE, RESTRICTED),
        (SINGLE, SINGLE, None, SINGLE),
        (SINGLE, RESTRICTED, SINGLE, PolicyCause(POLICY_MISMATCH, RESTRICTED, SINGLE)),
    ],
)
def test_policies_of_pod_and_node_must_not_differ(pod, label, kubelet, policy):
    assert choose_policy(pod, label=label, kubelet=kubelet, all_nodes=0b11) == policy


def test_policy_needs_numa_nodes():
    refusal = choose_policy(SINGLE, label=None, kubelet=None, all_nodes=0)
    assert refusal == PolicyCause(NO_NUMA_NODES, None, SINGLE)
    assert refusal.describe() == "node(s) missing NUMA resources"
    assert not refusal.is_resolvable
    assert choose_policy(None, label=None, kubelet=None, all_nodes=0) is None


def test_pods_keep_apart_by_default_if_they_name_a_policy():
    assert choose_exclusive(SINGLE, None) is REQUIRED
    assert choose_exclusive(SINGLE, PREFERRED) is PREFERRED
    assert choose_exclusive(None, None) is PREFERRED


def test_best_effort_never_refuses_nodes():
    assert [policy for policy in NumaPolicy if policy.may_refuse] == [RESTRICTED, SINGLE]


# Pods that keep apart


def test_numa_nodes_are_single_shared_or_idle():
    assert find_occupancy([0b0001, 0b0001, 0b0010, 0b0110]) == NumaOccupancy(0b0001, 0b0110)


@pytest.mark.parametrize(
    ("nodes", "single", "shared", "conflict"),
    [
        (0b01, 0b10, 0b00, 0),
        (0b01, 0b10, 0b01, 0b01),
        (0b01, 0b01, 0b10, 0),
        (0b11, 0b10, 0b01, 0b10),
        (0b11, 0b00, 0b01, 0),
        (0b11, 0b00, 0b11, 0),
    ],
)
def test_exclusive_pods_avoid_pods_of_the_other_kind(nodes, single, shared, conflict):
    occupancy = NumaOccupancy(single, shared)
    conflicting = occupancy.conflict(REQUIRED, nodes)
    assert (conflicting.nodes if conflicting else 0) == conflict
    assert occupancy.conflict(PREFERRED, nodes) is None


# Merging hints


CPU_OR_GPU = [("cpu", [prefer(1), prefer(2), offer(3)]), ("gpu", [prefer(2, 500), offer(3, 500)])]


@pytest.mark.parametrize("policy", NumaPolicy)
def test_resources_share_a_numa_node(policy):
    assert align(policy, 3, CPU_OR_GPU).hint == prefer(2, 500)


def test_a_higher_score_decides_between_sets_of_one_size():
    scored = [prefer(1, 10), prefer(2, 90), prefer(4, 90), prefer(3, 500)]
    assert merge_hints(7, [scored]) == prefer(2, 90)


def test_resource_without_preference_does_not_decide():
    hints = [("cpu", None), ("gpu", [prefer(2)])]
    assert align(RESTRICTED, 3, hints).hint == prefer(2)
    assert align(RESTRICTED, 3, [("cpu", None)]).hint == prefer(3)


def test_single_numa_node_without_preference_names_no_node():
    assert align(SINGLE, 3, [("cpu", None)]).hint == prefer(None)


def test_best_effort_uses_every_node_if_a_resource_needs_more():
    hints = [("cpu", [prefer(1)]), ("gpu", [prefer(3)])]
    alignment = align(BEST_EFFORT, 15, hints)
    assert alignment.hint == offer(15)
    assert alignment.cause is None


@pytest.mark.parametrize(
    ("policy", "hints", "messages"),
    [
        (RESTRICTED, [("gpu", []), ("cpu", [offer(1)])], ["Unsatisfied NUMA gpu"]),
        (SINGLE, [("gpu", []), ("cpu", [])], ["Unsatisfied NUMA cpu", "Unsatisfied NUMA gpu"]),
        (
            RESTRICTED,
            [("gpu", [prefer(1), offer(3)]), ("cpu", [prefer(2), offer(3)])],
            [
                (
                    "Unaligned NUMA Hint cause cpu prefer [10] among [10 11]"
                    " & gpu prefer [01] among [01 11]"
                )
            ],
        ),
        (
            SINGLE,
            [("gpu", [prefer(3)]), ("cpu", [offer(None)]), ("memory", None)],
            ["Unaligned NUMA Hint cause cpu prefer [] among [<nil>],gpu prefer [11] among [11]"],
        ),
    ],
)
def test_refusal_names_what_each_resource_would_need(policy, hints, messages):
    refusal = align(policy, 3, hints).cause
    assert refusal is not None
    assert list(refusal.messages()) == messages
    assert refusal.describe() == "; ".join(messages)
    assert refusal.is_resolvable


def test_refusal_names_the_nodes_of_pods_that_keep_apart():
    alignment = align(RESTRICTED, 3, [("gpu", [prefer(3)])], REQUIRED, NumaOccupancy(single=0b10))
    assert alignment.cause is not None
    assert alignment.cause.describe() == (
        "Unaligned NUMA Hint cause gpu prefer [11] among [11]; "
        "NUMA node 1 is single (singleNUMANodeExclusive: Required)"
    )
    assert align(RESTRICTED, 3, [("gpu", [prefer(3)])], REQUIRED).cause is None


MASKS = st.integers(1, 15)
CHOICES = st.lists(
    st.one_of(
        st.just([prefer(None)]),
        st.just([NumaHint(None, is_preferred=False, is_unsatisfied=True)]),
        st.lists(
            st.builds(NumaHint, MASKS, st.booleans(), st.sampled_from([0, 7, 500])),
            max_size=6,
            unique_by=lambda hint: hint.nodes,
        ),
    ),
    max_size=4,
)


def merge_all(
    all_nodes: int, choices: Sequence[Sequence[NumaHint]], is_allowed: Callable[[int], bool]
) -> NumaHint:
    """Try every combination of hints."""
    best = offer(all_nodes)
    for combination in product(*choices):
        sets = [hint.nodes for hint in combination if hint.nodes is not None]
        common = all_nodes
        for nodes in sets:
            common &= nodes
        if not common:
            continue
        merged = NumaHint(
            common,
            all(hint.is_preferred for hint in combination)
            and len(set(sets)) <= 1
            and is_allowed(common),
            sum(hint.score for hint in combination if hint.nodes == common),
            any(hint.is_unsatisfied for hint in combination)
            or any(nodes.bit_count() > common.bit_count() for nodes in sets),
        )
        best = min(best, merged, key=rank)
    return best


def rank(hint: NumaHint) -> tuple[bool, int, int, int]:
    assert hint.nodes is not None
    return not hint.is_preferred, hint.nodes.bit_count(), -hint.score, hint.nodes


@given(CHOICES, MASKS)
def test_merging_finds_the_best_combination(choices, barred):
    def is_allowed(nodes: int) -> bool:
        return not nodes & barred & (barred >> 1)

    assert merge_hints(15, choices, is_allowed) == merge_all(15, choices, is_allowed)


@given(CHOICES)
def test_preferred_result_is_preferred_by_every_resource(choices):
    merged = merge_hints(15, choices)
    if merged.is_preferred:
        for hints in choices:
            assert any(hint.nodes in {None, merged.nodes} and hint.is_preferred for hint in hints)


@given(CHOICES, st.sampled_from(NumaPolicy))
def test_strict_policies_admit_preferred_sets_only(choices, policy):
    alignment = align(policy, 15, [(str(index), hints) for index, hints in enumerate(choices)])
    if policy is BEST_EFFORT:
        assert alignment.cause is None
        assert not alignment.hint.is_unsatisfied
    else:
        assert (alignment.cause is None) == alignment.hint.is_preferred
    if policy is SINGLE and alignment.cause is None:
        assert alignment.hint.nodes is None or alignment.hint.nodes.bit_count() == 1


# Sets of NUMA nodes


def test_all_sets_are_listed_by_size():
    assert list_sets(0b1011) == (1, 2, 8, 3, 9, 10, 11)
    assert len(list_sets((1 << 8) - 1)) == MAX_SETS
    assert list_sets(0) == ()


def test_large_machines_are_tried_with_small_sets_and_all_nodes():
    sets = list_sets((1 << 34) - 1)
    assert len(sets) == 35
    assert sets[-1] == (1 << 34) - 1
    assert make_hints([(zone_set, 0) for zone_set in sets])[33:] == (
        prefer(1 << 33),
        offer(sets[-1]),
    )
