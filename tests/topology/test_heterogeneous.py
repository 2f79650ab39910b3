"""Heterogeneous gangs: placements are valid, and optimal if they have no gap."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cluster import nodes_of
from tests.support.laws import examples
from tests.topology.test_gang_topology import GANG, ask, make_network, must, prefer, run

from koord.core.engine import steps
from koord.core.model.reasons import TooExpensive
from koord.core.model.topology_constraint import NODE_LAYER
from koord.core.topology.strategy import heterogeneous
from koord.core.topology.strategy.domain_placer import DomainPlacer

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

    from koord.core.model.plan import Plan
    from koord.core.model.pods import Pod
    from koord.core.topology.capacity import SplitRequest

EVERY_CHECK = range(examples(40))
SLOW = range(150, 3000)

Key = tuple[int, ...]
ORDERS = {
    "": ("Spine", "Block", NODE_LAYER),
    "Block": ("Block", "Spine", NODE_LAYER),
    NODE_LAYER: (NODE_LAYER, "Spine", "Block"),
}


def make_case(seed: int) -> tuple[dict[str, dict[str, list[int]]], dict[int, int], str, str, int]:
    """Make CPUs of nodes, members with their CPUs, and a constraint."""
    dice = random.Random(seed)  # noqa: S311 - the same every time
    sizes = {
        f"s{spine}": {
            f"b{spine}{block}": [dice.randint(1, 6) for _ in range(dice.randint(1, 2))]
            for block in range(dice.randint(1, 2))
        }
        for spine in range(dice.randint(1, 2))
    }
    kinds = {cpus: dice.randint(1, 2) for cpus in dice.sample((1, 2, 3, 4), dice.randint(2, 3))}
    wanted = dice.choice(("", "", "Spine", "Block"))
    preferred = dice.choice(("", "", "Block", NODE_LAYER))
    return sizes, kinds, wanted, preferred, dice.choice((1, 1, 1, 2))


def make_kinds(kinds: dict[int, int]) -> list[Pod]:
    return [
        make_pod(f"k{cpus}-{at}").gang(GANG).requests(cpu=cpus * 1000).build()
        for cpus, count in kinds.items()
        for at in range(count)
    ]


def find_best(
    sizes: dict[str, dict[str, list[int]]],
    pods: list[int],
    wanted: str,
    order: tuple[str, ...],
    multiple: int,
    *,
    standing: tuple[int, ...] = (),
) -> Key | None:
    """Try every placement; ``standing`` are the nodes of placed members."""
    nodes = [
        (spine, block, cpus)
        for spine, blocks in sizes.items()
        for block in blocks
        for cpus in blocks[block]
    ]
    best: Key | None = None
    for places in product(range(len(nodes)), repeat=len(pods)):
        load = [0] * len(nodes)
        for pod, at in zip(pods, places, strict=True):
            load[at] += pod
        if any(taken > node[2] for taken, node in zip(load, nodes, strict=True)):
            continue
        everyone = (*places, *standing)
        blocks = [nodes[at][1] for at in everyone]
        if any(blocks.count(block) % multiple for block in blocks):
            continue
        used = {
            "Spine": len({nodes[at][0] for at in everyone}),
            "Block": len(set(blocks)),
            NODE_LAYER: len(set(everyone)),
        }
        if wanted and used[wanted] > 1:
            continue
        key = tuple(used[layer] for layer in order)
        best = key if best is None else min(best, key)
    return best


def check(seed: int) -> tuple[Key | None, Key | None]:
    """Return the placement found and the best one; fail if the answer is invalid."""
    sizes, kinds, wanted, preferred, multiple = make_case(seed)
    constraints = [must(wanted)] if wanted else []
    constraints += [prefer(preferred)] if preferred else []
    constraints += [prefer("Spine")] if not constraints and multiple == 1 else []
    order = ORDERS[preferred]
    if multiple > 1:
        constraints.append(
            must("Block", multiple) if wanted == "Block" else prefer("Block", multiple)
        )
        order = ORDERS[preferred] if wanted == "Block" else _with_block_preferred(preferred)
    cluster = make_network(sizes)
    ask(cluster, *constraints)
    outcome = run(cluster, make_kinds(kinds))
    pods = [cpus for cpus, count in kinds.items() for _ in range(count)]
    best = find_best(sizes, pods, wanted, order, multiple)
    if not outcome.placements:
        return None, best
    where = outcome.placements[0].topologies[0]
    used = dict(where.used)
    found = tuple(used[layer] for layer in order)
    assert_holds(outcome, sizes, multiple)
    assert_bounded(found, best, where.gap, order)
    return found, best


def assert_bounded(
    found: Key, best: Key | None, gap: tuple[str, int] | None, order: tuple[str, ...]
) -> None:
    """Check that the placement is the best, or worse by no more than its gap."""
    assert best is not None
    if gap is None:
        assert found == best
        return
    layer, count = gap
    at = order.index(layer)
    assert count > 0
    assert found[:at] == best[:at]
    assert found[at] - count <= best[at] <= found[at]
    assert found >= best


def _with_block_preferred(preferred: str) -> tuple[str, ...]:
    if preferred == NODE_LAYER:
        return (NODE_LAYER, "Block", "Spine")
    return ORDERS["Block"]


def assert_holds(outcome: Plan, sizes: dict[str, dict[str, list[int]]], multiple: int) -> None:
    cpus = [size for blocks in sizes.values() for nodes in blocks.values() for size in nodes]
    homes = [block for blocks in sizes.values() for block in blocks for _ in blocks[block]]
    load = [0] * len(cpus)
    blocks = []
    for pod, node in nodes_of(outcome).items():
        at = int(node.removeprefix("node-"))
        load[at] += int(pod[1])
        blocks.append(homes[at])
    assert all(taken <= size for taken, size in zip(load, cpus, strict=True))
    assert all(blocks.count(block) % multiple == 0 for block in blocks)


def share_of_best(seeds: range) -> tuple[int, int, int]:
    """Return how many were placed optimally, how many worse, how many not at all."""
    as_best = worse = missed = 0
    for seed in seeds:
        found, best = check(seed)
        as_best += found == best
        worse += found is not None and found != best
        missed += found is None and best is not None
    return as_best, worse, missed


def test_heterogeneous_members_are_placed_together() -> None:
    as_best, worse, missed = share_of_best(EVERY_CHECK)
    assert worse + missed <= as_best // 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_heterogeneous_gangs_are_placed_together() -> None:
    as_best, worse, missed = share_of_best(SLOW)
    assert worse + missed <= as_best // 20


def gang_of_different_pods(shapes: int) -> tuple[FakeCluster, list[Pod]]:
    """Make a gang that just does not fit in any block, and is tried in all of them."""
    share = shapes // 4 + 2
    cluster = make_network({f"s{n}": {f"b{n}{m}": [share] * 2 for m in range(4)} for n in range(2)})
    ask(cluster, prefer("Block"))
    pods = [make_pod(f"k{at}").gang(GANG).requests(cpu=500 + at).build() for at in range(shapes)]
    return cluster, pods


def count_splits(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    splits: list[object] = []
    split = DomainPlacer.split

    def count(placer: DomainPlacer, request: SplitRequest) -> object:
        splits.append(request)
        return split(placer, request)

    monkeypatch.setattr(DomainPlacer, "split", count)
    return splits


def test_the_search_for_a_better_placement_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang of a thousand different pods must not occupy the planner for ten seconds."""
    shapes = 40
    splits = count_splits(monkeypatch)
    cluster, pods = gang_of_different_pods(shapes)
    assert len(nodes_of(run(cluster, pods))) == shapes
    at_leisure = len(splits)
    splits.clear()
    monkeypatch.setattr(heterogeneous, "SEARCH_SHARE", 0.0)
    cluster, pods = gang_of_different_pods(shapes)
    assert len(nodes_of(run(cluster, pods))) == shapes, "it is placed all the same"
    assert len(splits) <= 3 * shapes < at_leisure


def test_splits_are_steps_of_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PER_UNIT", 2_000_000)
    monkeypatch.setattr(steps, "PER_NODE", 0)
    monkeypatch.setattr(steps, "PER_ROW", 1)
    cluster, pods = gang_of_different_pods(40)
    (refusal,) = run(cluster, pods).refusals
    assert isinstance(refusal.reason, TooExpensive)


nodes_of_blocks = st.lists(st.integers(1, 6), min_size=1, max_size=2)
sizes_of_clusters = st.lists(
    st.lists(nodes_of_blocks, min_size=1, max_size=2), min_size=1, max_size=2
).map(
    lambda spines: {
        f"s{spine}": {f"b{spine}{block}": nodes for block, nodes in enumerate(blocks)}
        for spine, blocks in enumerate(spines)
    }
)
roles_of_gangs = st.dictionaries(st.integers(1, 4), st.integers(1, 3), min_size=2, max_size=3)


@given(
    sizes_of_clusters,
    roles_of_gangs.filter(lambda kinds: sum(kinds.values()) <= 5),
    st.sampled_from(("", "Spine", "Block")),
    st.sampled_from(("", "Block", NODE_LAYER)),
    st.booleans(),
)
@settings(max_examples=examples(50), deadline=None)
def test_gap_bounds_the_distance_to_the_best_placement(
    sizes: dict[str, dict[str, list[int]]],
    kinds: dict[int, int],
    wanted: str,
    preferred: str,
    has_sibling: bool,  # noqa: FBT001 - hypothesis calls it
) -> None:
    cluster = make_network(sizes)
    constraints = [must(wanted)] if wanted else []
    constraints += [prefer(preferred)] if preferred else []
    ask(cluster, *(constraints or [prefer("Spine")]))
    if has_sibling:
        cluster.pods(make_pod("old").gang(GANG).running("node-0"))
    outcome = run(cluster, make_kinds(kinds))
    order = ORDERS[preferred]
    pods = [cpus for cpus, count in kinds.items() for _ in range(count)]
    best = find_best(sizes, pods, wanted, order, 1, standing=(0,) if has_sibling else ())
    if not outcome.placements:
        return
    where = outcome.placements[0].topologies[0]
    found = tuple(dict(where.used)[layer] for layer in order)
    assert_bounded(found, best, where.gap, order)
