"""Shorthands to make quotas and to solve them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.builders import make_quota

from koord.core.model.pods import PodShape
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import KOORDINATOR, ROOT, QuotaCharge, QuotaRules, QuotaSpec, Usage
from koord.core.quota.solve import ShareInput, Solution, solve
from koord.core.quota.tree import make_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GI = 1 << 30
GPU = "nvidia.com/gpu"
OURS = QuotaRules()
BOTH = [OURS, KOORDINATOR]


def quota(
    name: str,
    parent: str = ROOT,
    *,
    min: int = 0,  # noqa: A002 - as the field is called
    max: int = 1 << 40,  # noqa: A002
    key: str = "cpu",
    **more: Any,
) -> QuotaSpec:
    """Make a quota of one resource; ``weight`` is a number, too."""
    if "weight" in more:
        more["weight"] = {key: more["weight"]}
    return make_quota(name, parent=parent, min={key: min}, max={key: max}, **more)


def wants(amount: int, used: int = 0, key: str = "cpu") -> Usage:
    """Make the usage of pods that ask ``amount`` in all, of which ``used`` have a node."""
    return Usage(submitted={key: amount}, demand={key: amount}, used={key: used})


def settle(
    specs: Iterable[QuotaSpec],
    total: Mapping[str, int] | int,
    usage: Mapping[str, Usage | int],
    rules: QuotaRules = OURS,
) -> Solution:
    """Solve a tree; numbers stand for ``cpu``."""
    used = {
        name: wants(amount) if isinstance(amount, int) else amount for name, amount in usage.items()
    }
    capacity = {"cpu": total} if isinstance(total, int) else total
    return solve(ShareInput(make_tree(specs), capacity, used, rules))


def shares(solution: Solution, key: str = "cpu") -> dict[str, int]:
    """Return what each quota is entitled to of one resource."""
    names = solution.inputs.tree.layout.names[1:]
    return {name: solution.share(name)[key] for name in names}


def make_ledger(*args: Any, rules: QuotaRules = OURS) -> Ledger:
    return Ledger([settle(*args, rules)], rules)


def charge(
    name: str, amount: int, key: str = "cpu", *, is_non_preemptible: bool = False
) -> QuotaCharge:
    return QuotaCharge(name, {key: amount}, {key: amount} if is_non_preemptible else {})


def shape(**requests: int) -> PodShape:
    return PodShape(tuple(sorted({"pods": 1, **requests}.items())))
