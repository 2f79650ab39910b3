"""Invariants of quotas on a hundred thousand random trees: ``make soak``.

The same rules as in ``test_invariants``, which draws by hypothesis and so finds the smallest tree
that breaks one; here they are drawn plainly, which is many times as fast. A state is known by its
seed: ``python -m tests.quota.soak --first SEED --states 1``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.quota.scene import KOORDINATOR, OURS, charge, settle, shares
from tests.quota.test_invariants import (
    admit,
    assert_same,
    assert_sums,
    floor_phase,
    take_back,
)
from tests.quota.trees import KEY, Level, consistent, share_level, solve_plainly

from koord.core.quota.admission import has_more_room, try_charge
from koord.core.quota.ledger import Ledger
from koord.core.quota.leftovers import PendingUnit, grant_leftovers
from koord.core.quota.model import ROOT, QuotaRules, QuotaSpec, Usage
from koord.core.quota.reasons import QuotaExceeded, RequestAboveMax
from koord.core.quota.reclaim import find_entitlement, find_overuse
from koord.core.quota.solve import ShareInput, solve
from koord.core.quota.tree import make_tree, replace_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STATES = 100_000
REPORTED = 10_000


class State:
    """One random state: a level, and a tree with its pods; ``rng`` goes on from there."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"quota {seed}")  # noqa: S311 - to be repeated, not to be secret
        rows = range(rng.randint(1, 8))
        self.level = Level(
            [rng.randint(0, 24) for _ in rows],
            [rng.randint(0, 24) for _ in rows],
            [rng.randint(0, 12) for _ in rows],
            [rng.random() < 0.5 for _ in rows],
        )
        self.amount = rng.randint(-5, 200)
        self.specs = [self._make_spec(at) for at in range(rng.randint(1, 7))]
        self.total = rng.randint(-3, 60)
        self.rules = replace(rng.choice((OURS, KOORDINATOR)), scales_min=rng.random() < 0.5)
        self.usage = self.draw_usage()

    def _make_spec(self, at: int) -> QuotaSpec:
        rng, top = self.rng, self.rng.randint(0, 40)
        parent = rng.choice((ROOT, *(f"q{number}" for number in range(at))))
        weight = rng.choice((None, {KEY: rng.randint(0, 12)}))
        return QuotaSpec(
            f"q{at}",
            parent=parent,
            is_parent=True,
            min={KEY: rng.randint(0, top)},
            max={KEY: top},
            weight=weight,
            lends=rng.random() < 0.5,
        )

    def draw_usage(self, specs: Sequence[QuotaSpec] = ()) -> dict[str, Usage]:
        usage = {}
        for spec in specs or self.specs:
            requested = self.rng.randint(0, 24)
            used = self.rng.randint(0, requested)
            usage[spec.name] = Usage({KEY: requested}, {KEY: requested}, {KEY: used})
        return usage

    def open_ledger(self, rules: QuotaRules, usage: dict[str, Usage]) -> Ledger:
        return Ledger([settle(self.specs, {KEY: self.total}, usage, rules)], rules)


def check_level(state: State) -> None:
    """I1, I2, I3, I4, I6 and I14, of one level."""
    level, total = state.level, state.amount
    share, start = share_level(total, level), floor_phase(level)
    assert sum(share) <= max(total, sum(start)), "I2"
    rows = [*zip(share, *level[:4], strict=True)]
    for got, floor, want, _, lends in rows:
        least = min(want, floor) if lends else floor
        assert least <= got <= max(want, least if lends else floor), "I1"
    if all(level.weights) and sum(start) <= total:
        wanted = sum(want if lends else max(want, floor) for _, floor, want, _, lends in rows)
        assert sum(share) == min(total, wanted), "I3"
    hungry = [(got - floor, weight) for got, floor, want, weight, _ in rows if got < want]
    rounds = len(rows)
    for extra, weight in hungry if all(level.weights) else ():
        for other_extra, other_weight in hungry:
            assert abs(extra * other_weight - other_extra * weight) <= rounds * (
                weight + other_weight
            ), "I6"
    renamed = Level(*([*reversed(column)] for column in level[:4]))
    for before, after in zip(share, reversed(share_level(total, renamed)), strict=True):
        assert abs(before - after) <= rounds, "I4"
    for before, after in zip(share, share_level(total + 1, level), strict=True):
        assert before - after <= rounds, "I14"


def check_tree(state: State) -> None:
    """I4, I5, I7 and I8, of a tree, and equality with the reference."""
    specs, total, usage, rules = state.specs, {KEY: state.total}, state.usage, state.rules
    solution = settle(specs, total, usage, rules)
    share_of = shares(solution, KEY)
    assert share_of == solve_plainly(specs, state.total, usage, rules), "plain"
    shuffled = state.rng.sample(specs, len(specs))
    assert share_of == shares(settle(shuffled, total, usage, rules), KEY), "I4"
    parent = state.rng.choice((ROOT, *(spec.name for spec in specs)))
    idle = QuotaSpec("idle", parent=parent, max={KEY: 9}, min={KEY: 0})
    assert shares(settle([*specs, idle], total, usage, rules), KEY) == {**share_of, "idle": 0}, "I5"
    if consistent(specs) and rules.scales_min and rules.serves_own_pods_first:
        for spec in specs:
            below = sum(share_of[child.name] for child in specs if child.parent == spec.name)
            assert below <= share_of[spec.name], "I7"
    top = [spec for spec in specs if spec.parent == ROOT]
    if rules.scales_min:
        scaled = [solution.minimum(spec.name)[KEY] for spec in top]
        wanted = [spec.min[KEY] for spec in top]
        assert sum(scaled) <= max(0, state.total), "I8"
        assert state.total < sum(wanted) or scaled == wanted, "I8"


def check_changes(state: State) -> None:
    """I9: after any changes it is equal to a full solution."""
    rng, specs = state.rng, {spec.name: spec for spec in state.specs}
    rules = replace(OURS, guarantees_usage=rng.random() < 0.5)
    tree, usage, total = make_tree(specs.values()), state.usage, state.total
    solution = solve(ShareInput(tree, {KEY: total}, usage, rules))
    for _ in range(rng.randint(1, 5)):
        name = rng.choice(sorted(specs))
        match rng.randrange(4):
            case 0:
                usage = {**usage, **state.draw_usage([specs[name]])}
            case 1:
                total = rng.randint(0, 60)
            case 2:
                top = rng.randint(0, 24)
                specs[name] = replace(specs[name], max={KEY: top}, min={KEY: top // 2})
                tree = replace_spec(tree, specs[name])
            case 3:
                specs[name] = replace(specs[name], parent=ROOT, lends=not specs[name].lends)
                tree = replace_spec(tree, specs[name])
        snapshot = ShareInput(tree, {KEY: total}, usage, rules)
        solution = solve(snapshot, solution)
        assert_same(solution, solve(replace(snapshot, tree=make_tree(specs.values()))))
        assert_sums(solution)


def check_admission(state: State) -> None:
    """I10, I13 and leftovers, over random units."""
    rng, rules = state.rng, replace(OURS, parents_take_pods=True)
    unused = {name: replace(usage, used={}) for name, usage in state.usage.items()}
    ledger = state.open_ledger(rules, unused)
    for _ in range(rng.randint(1, 6)):
        unit = [charge(rng.choice(state.specs).name, rng.randint(1, 12), KEY)]
        refusal = try_charge(ledger, unit)
        if isinstance(refusal, QuotaExceeded):
            assert not has_more_room(refusal, ledger), "I13"
            after = state.open_ledger(rules, state.draw_usage())
            had, has = (_slack(compared, refusal.quota) for compared in (ledger, after))
            helps = has > had and not isinstance(refusal, RequestAboveMax)
            assert has_more_room(refusal, after) is helps, "I13"
        for name in ledger.names():
            account = ledger.account(name)
            assert account.used.get(KEY, 0) <= account.share[KEY] <= account.spec.max[KEY], "I10"
    if consistent(state.specs):
        _check_leftovers(state, state.open_ledger(rules, unused))


def _slack(ledger: Ledger, name: str) -> int:
    account = ledger.account(name)
    return account.share[KEY] - account.used.get(KEY, 0)


def _check_leftovers(state: State, ledger: Ledger) -> None:
    pending = [
        PendingUnit(name, (charge(name, usage.demand[KEY], KEY),), float(at))
        for at, (name, usage) in enumerate(state.usage.items())
        if usage.demand[KEY]
    ]
    leftovers = grant_leftovers(ledger, pending, {})
    for unit in pending:
        if try_charge(ledger, unit.charges) is not None:
            leftovers.try_charge(ledger, unit.key, unit.charges)
    top = [spec.name for spec in state.specs if spec.parent == ROOT]
    assert sum(ledger.account(quota).used.get(KEY, 0) for quota in top) <= max(0, state.total), (
        "leftovers"
    )
    for spec in state.specs:
        assert ledger.account(spec.name).used.get(KEY, 0) <= spec.max[KEY], "leftovers"


def check_overuse(state: State) -> None:
    """I11: nobody within its guarantee is over."""
    ledger = state.open_ledger(OURS, state.usage)
    over = {overuse.quota for overuse in find_overuse(ledger)}
    for spec in state.specs:
        used = ledger.account(spec.name).used.get(KEY, 0)
        if used <= ledger.solution(spec.name).minimum(spec.name)[KEY]:
            assert spec.name not in over, "I11"
            assert used <= find_entitlement(ledger, spec.name)[KEY], "I11"


def check_evictions(state: State) -> None:
    """I12: evicting for who is entitled, and admitting, comes to an end."""
    rng, total = state.rng, 16
    specs = [QuotaSpec(name, min={KEY: rng.randint(0, 5)}, max={KEY: 16}) for name in "abc"]
    units = {
        f"{name}/{at}": PendingUnit(
            f"{name}/{at}", (charge(name, rng.randint(1, 16), KEY),), float(at)
        )
        for name in "abc"
        for at in range(rng.randint(0, 3))
    }
    running = {key for key in sorted(units) if rng.random() < 0.5}
    seen = [set(running)]
    while True:
        running -= take_back(specs, total, units, running)
        running |= admit(specs, total, units, running)
        if running == seen[-1]:
            return
        assert running not in seen, "I12"
        seen.append(set(running))


CHECKS: tuple[Callable[[State], None], ...] = (
    check_level,
    check_tree,
    check_changes,
    check_admission,
    check_overuse,
    check_evictions,
)


def check_states(first: int, states: int, report: Callable[[str], None]) -> Counter[str]:
    """Check a number of states; return how often each check was made. Raises AssertionError."""
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for at in range(states):
        seed = first + at
        state = State(seed)
        for check in CHECKS:
            try:
                check(state)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {check.__name__}: {error}") from error
            counts[check.__name__] += 1
        if (at + 1) % REPORTED == 0:
            report(f"{at + 1:,} states of quotas, {time.monotonic() - began:.0f} s")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=STATES)
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    options = parser.parse_args()
    try:
        check_states(options.first, options.states, lambda line: print(line, flush=True))  # noqa: T201
    except AssertionError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
