"""Random trees of quotas, small enough that corners are hit often, and a plain second solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from koord.core.quota.model import ROOT, QuotaRules, QuotaSpec, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEY = "gpu"
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
        sum(one.min[KEY] for one in specs if one.parent == spec.name) <= spec.min[KEY]
        for spec in specs
    )


@st.composite
def usages(draw: st.DrawFn, specs: Sequence[QuotaSpec]) -> dict[str, Usage]:
    """Draw what the pods of each quota ask; some use a part of it."""
    found = {}
    for spec in specs:
        asked = draw(AMOUNTS)
        used = draw(st.integers(0, asked))
        found[spec.name] = Usage({KEY: asked}, {KEY: asked}, {KEY: used})
    return found


def solve_plainly(
    specs: Sequence[QuotaSpec], total: int, usage: Mapping[str, Usage], rules: QuotaRules
) -> dict[str, int]:
    """Compute shares step by step as the rules are written, one quota at a time."""
    children = {
        name: sorted((one for one in specs if one.parent == name), key=lambda one: one.name)
        for name in (ROOT, *(spec.name for spec in specs))
    }

    def limited(spec: QuotaSpec) -> int:
        asked = own(spec.name) + sum(limited(child) for child in children[spec.name])
        if not spec.lends:
            asked = max(asked, spec.min[KEY])
        return min(asked, spec.max[KEY])

    def own(name: str) -> int:
        return usage[name].demand.get(KEY, 0) if name in usage else 0

    found: dict[str, int] = {}

    def share_out(name: str, amount: int) -> None:
        level = children[name]
        sum_of_min = sum(one.min[KEY] for one in level)
        floor = {one.name: one.min[KEY] for one in level}
        if rules.scales_min and amount < sum_of_min:
            floor = {
                one.name: max(0, amount) * one.min[KEY] // sum_of_min if amount > 0 else 0
                for one in level
            }
        has = {}
        for one in level:
            want = limited(one)
            borrows_or_keeps = want > floor[one.name] or not one.lends
            has[one.name] = floor[one.name] if borrows_or_keeps else want
        left = amount - sum(has.values())
        if rules.serves_own_pods_first and name != ROOT:
            left -= own(name)
        hungry = [one for one in level if has[one.name] < limited(one)]
        while left > 0 and sum(one.share_weight()[KEY] for one in hungry) > 0:
            whole = sum(one.share_weight()[KEY] for one in hungry)
            give = {one.name: one.share_weight()[KEY] * left // whole for one in hungry}
            by_rest = sorted(
                (one for one in hungry if one.share_weight()[KEY] > 0),
                key=lambda one: (-(one.share_weight()[KEY] * left % whole), one.name),
            )
            for one in by_rest[: left - sum(give.values())]:
                give[one.name] += 1
            left = 0
            for one in hungry:
                has[one.name] += give[one.name]
                left += max(0, has[one.name] - limited(one))
                has[one.name] = min(has[one.name], limited(one))
            hungry = [one for one in hungry if has[one.name] < limited(one)]
        found.update(has)
        for one in level:
            share_out(one.name, has[one.name])

    share_out(ROOT, total)
    return found
