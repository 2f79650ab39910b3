"""Small random trees of quotas, and a reference solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from koord.core.quota.fair_share import LevelDemands, divide_levels, make_levels, scale_guarantees
from koord.core.quota.model import ROOT, QuotaRules, QuotaSpec, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEY = "gpu"


class Level(NamedTuple):
    """The children of one parent, by name; ``own`` is the demand of the parent's own pods."""

    floors: Sequence[int]
    wants: Sequence[int]
    weights: Sequence[int]
    lends: Sequence[bool]
    own: int = 0


ONE_LEVEL = np.zeros(1, dtype=np.int64)


def scale_level(total: int, minimum: Sequence[int]) -> list[int]:
    """Scale the guarantees of the children of one parent."""
    levels = make_levels(ONE_LEVEL, len(minimum))
    amounts = np.array(minimum, dtype=np.int64)
    return list(scale_guarantees(levels, np.array([total]), amounts, np.ones(1, bool)).tolist())


def share_level(total: int, level: Level, dtype: Any = np.int64) -> list[int]:
    """Divide a total among the children of one parent, without scaling their guarantees."""
    claims = LevelDemands(
        minimum=np.array(level.floors, dtype=dtype),
        guaranteed=None,
        wants=np.array(level.wants, dtype=dtype),
        weights=np.array(level.weights, dtype=dtype),
        lends=np.array(level.lends, dtype=np.bool_),
        own=np.array([level.own], dtype=dtype),
    )
    levels = make_levels(ONE_LEVEL, len(level.wants))
    _, share = divide_levels(levels, np.array([total], dtype=dtype), claims, np.zeros(1, bool))
    return list(share.tolist())


AMOUNTS = st.integers(0, 24)
WEIGHTS = st.one_of(st.none(), st.integers(0, 12))


@st.composite
def forests(draw: st.DrawFn, largest: int = 6, *, weights: Any = WEIGHTS) -> list[QuotaSpec]:
    """Draw quotas; each hangs on the root or on an earlier one."""
    specs: list[QuotaSpec] = []
    for at in range(draw(st.integers(1, largest))):
        parent = draw(st.sampled_from([ROOT, *(spec.name for spec in specs)]))
        top = draw(st.integers(0, 40))
        weight = draw(weights)
        spec = QuotaSpec(
            f"q{at}",
            parent=parent,
            is_parent=True,
            min={KEY: draw(st.integers(0, top))},
            max={KEY: top},
            weight=None if weight is None else {KEY: weight},
            lends=draw(st.booleans()),
        )
        specs.append(spec)
    return specs


def consistent(specs: Sequence[QuotaSpec]) -> bool:
    """Whether guarantees of children fit into that of their parent."""
    return all(
        sum(child.min[KEY] for child in specs if child.parent == spec.name) <= spec.min[KEY]
        for spec in specs
    )


@st.composite
def usages(draw: st.DrawFn, specs: Sequence[QuotaSpec]) -> dict[str, Usage]:
    """Draw what the pods of each quota ask; some use a part of it."""
    usage = {}
    for spec in specs:
        requested = draw(AMOUNTS)
        used = draw(st.integers(0, requested))
        usage[spec.name] = Usage({KEY: requested}, {KEY: requested}, {KEY: used})
    return usage


def solve_plainly(
    specs: Sequence[QuotaSpec], total: int, usage: Mapping[str, Usage], rules: QuotaRules
) -> dict[str, int]:
    """Compute shares step by step as the rules are written, one quota at a time."""
    shares: dict[str, int] = {}

    def share_out(name: str, amount: int) -> None:
        level = children_of(specs, name)
        own = demand_of(usage, name) if rules.serves_own_pods_first and name != ROOT else 0
        wants = {child.name: limited(specs, usage, child) for child in level}
        has = start_level(level, amount, wants, scales=rules.scales_min)
        share_rest(level, amount - own - sum(has.values()), wants, has)
        shares.update(has)
        for child in level:
            share_out(child.name, has[child.name])

    share_out(ROOT, total)
    return shares


def children_of(specs: Sequence[QuotaSpec], name: str) -> list[QuotaSpec]:
    return sorted((spec for spec in specs if spec.parent == name), key=lambda spec: spec.name)


def demand_of(usage: Mapping[str, Usage], name: str) -> int:
    return usage[name].demand.get(KEY, 0) if name in usage else 0


def limited(specs: Sequence[QuotaSpec], usage: Mapping[str, Usage], spec: QuotaSpec) -> int:
    below = sum(limited(specs, usage, child) for child in children_of(specs, spec.name))
    requested = demand_of(usage, spec.name) + below
    if not spec.lends:
        requested = max(requested, spec.min[KEY])
    return min(requested, spec.max[KEY])


def start_level(
    level: Sequence[QuotaSpec], amount: int, wants: Mapping[str, int], *, scales: bool
) -> dict[str, int]:
    sum_of_min = sum(child.min[KEY] for child in level)
    has = {}
    for child in level:
        floor = child.min[KEY]
        if scales and amount < sum_of_min:
            floor = amount * floor // sum_of_min if amount > 0 else 0
        want = wants[child.name]
        has[child.name] = want if want <= floor and child.lends else floor
    return has


def share_rest(
    level: Sequence[QuotaSpec], left: int, wants: Mapping[str, int], has: dict[str, int]
) -> None:
    weight = {child.name: child.share_weight()[KEY] for child in level}
    hungry = [name for name in wants if has[name] < wants[name]]
    while left > 0 and sum(weight[name] for name in hungry) > 0:
        whole = sum(weight[name] for name in hungry)
        give = {name: weight[name] * left // whole for name in hungry}
        by_rest = sorted(
            (name for name in hungry if weight[name] > 0),
            key=lambda name, left=left, whole=whole: (-(weight[name] * left % whole), name),
        )
        for name in by_rest[: left - sum(give.values())]:
            give[name] += 1
        left = 0
        for name in hungry:
            has[name] += give[name]
            left += max(0, has[name] - wants[name])
            has[name] = min(has[name], wants[name])
        hungry = [name for name in hungry if has[name] < wants[name]]
