"""Invariants of every tree and demand, as listed in ``docs/quota-shares.md``."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.quota.scene import KOORDINATOR, OURS, charge, settle, shares
from tests.quota.trees import (
    AMOUNTS,
    KEY,
    Level,
    consistent,
    forests,
    share_level,
    solve_plainly,
    usages,
)

from koord.core.quota.admission import has_more_room, try_charge
from koord.core.quota.ledger import Ledger
from koord.core.quota.leftovers import PendingUnit, grant_leftovers
from koord.core.quota.model import ROOT, QuotaRules, QuotaSpec, Usage
from koord.core.quota.reasons import QuotaExceeded, RequestAboveMax
from koord.core.quota.reclaim import RunningUnit, choose_victims, find_entitlement, find_overuse
from koord.core.quota.solve import ShareInput, Solution, solve
from koord.core.quota.tree import make_tree, replace_spec

RULES = st.builds(
    replace,
    st.sampled_from([OURS, KOORDINATOR]),
    scales_min=st.booleans(),
)


ANY_WEIGHT = st.integers(0, 12)


@st.composite
def levels(draw: st.DrawFn, weights: st.SearchStrategy[int] = ANY_WEIGHT) -> Level:
    rows = draw(st.lists(st.tuples(AMOUNTS, AMOUNTS, weights, st.booleans()), min_size=1))
    return Level(*(list(column) for column in zip(*rows, strict=True)))


def floor_phase(level: Level) -> list[int]:
    rows = zip(level.floors, level.wants, level.lends, strict=True)
    return [want if want <= floor and lends else floor for floor, want, lends in rows]


@given(levels(), st.integers(-5, 200))
def test_i1_between_guarantee_and_demand(level: Level, total: int) -> None:
    rows = zip(share_level(total, level), level.floors, level.wants, level.lends, strict=True)
    for share, floor, want, lends in rows:
        if lends:
            assert min(want, floor) <= share <= want
        else:
            assert floor <= share <= max(want, floor)


@given(levels(), st.integers(-5, 200))
def test_i2_shares_exceed_the_total_only_for_guarantees(level: Level, total: int) -> None:
    assert sum(share_level(total, level)) <= max(total, sum(floor_phase(level)))


@given(levels(weights=st.integers(1, 12)), st.integers(0, 200))
def test_i3_nothing_is_left_while_a_child_wants_more(level: Level, total: int) -> None:
    assume(sum(floor_phase(level)) <= total)
    rows = zip(level.wants, level.floors, level.lends, strict=True)
    wanted = sum(want if lends else max(want, floor) for want, floor, lends in rows)
    assert sum(share_level(total, level)) == min(total, wanted)


@given(st.data(), RULES)
def test_i4_the_order_of_quotas_does_not_matter(data: st.DataObject, rules: QuotaRules) -> None:
    specs = data.draw(forests())
    usage = data.draw(usages(specs))
    total = {KEY: data.draw(st.integers(0, 60))}
    shuffled = data.draw(st.permutations(specs))
    assert shares(settle(specs, total, usage, rules), KEY) == shares(
        settle(shuffled, total, usage, rules), KEY
    )


@given(levels(), st.integers(0, 200))
def test_i4_names_decide_at_most_one_unit_per_round(level: Level, total: int) -> None:
    renamed = Level(*(list(reversed(column)) for column in level[:4]))
    rounds = len(level.wants)
    pairs = zip(share_level(total, level), reversed(share_level(total, renamed)), strict=True)
    assert all(abs(before - after) <= rounds for before, after in pairs)


@given(st.data(), RULES)
def test_i5_an_idle_quota_without_guarantee_changes_nothing(
    data: st.DataObject, rules: QuotaRules
) -> None:
    specs = data.draw(forests())
    usage = data.draw(usages(specs))
    total = {KEY: data.draw(st.integers(0, 60))}
    parent = data.draw(st.sampled_from([ROOT, *(spec.name for spec in specs)]))
    idle = QuotaSpec("idle", parent=parent, max={KEY: 9}, min={KEY: 0})
    after = shares(settle([*specs, idle], total, usage, rules), KEY)
    assert after.pop("idle") == 0
    assert after == shares(settle(specs, total, usage, rules), KEY)


@given(levels(weights=st.integers(1, 12)), st.integers(0, 200))
def test_i6_unsatisfied_borrowers_share_by_weight(level: Level, total: int) -> None:
    share = share_level(total, level)
    hungry = [row for row, want in enumerate(level.wants) if share[row] < want]
    rounds = len(level.wants)
    for first in hungry:
        for second in hungry:
            weight, second_weight = level.weights[first], level.weights[second]
            extra, second_extra = (
                share[first] - level.floors[first],
                share[second] - level.floors[second],
            )
            assert abs(extra * second_weight - second_extra * weight) <= rounds * (
                weight + second_weight
            )


@given(st.data())
def test_i7_children_get_no_more_than_their_parent(data: st.DataObject) -> None:
    specs = data.draw(forests())
    assume(consistent(specs))
    usage = data.draw(usages(specs))
    share = shares(settle(specs, {KEY: data.draw(st.integers(0, 60))}, usage), KEY)
    for spec in specs:
        below = sum(share[child.name] for child in specs if child.parent == spec.name)
        assert below <= share[spec.name]


@given(st.data())
def test_i8_scaled_guarantees_fit_and_come_back(data: st.DataObject) -> None:
    specs = data.draw(forests())
    total = data.draw(st.integers(-3, 60))
    solution = settle(specs, {KEY: total}, data.draw(usages(specs)))
    top = [spec for spec in specs if spec.parent == ROOT]
    scaled = {spec.name: solution.minimum(spec.name)[KEY] for spec in top}
    wanted = sum(spec.min[KEY] for spec in top)
    assert sum(scaled.values()) <= max(0, total)
    if total >= wanted:
        assert scaled == {spec.name: spec.min[KEY] for spec in top}


@given(st.data(), RULES)
def test_shares_equal_those_of_the_reference(data: st.DataObject, rules: QuotaRules) -> None:
    specs = data.draw(forests())
    usage = data.draw(usages(specs))
    total = data.draw(st.integers(-3, 60))
    assert shares(settle(specs, {KEY: total}, usage, rules), KEY) == solve_plainly(
        specs, total, usage, rules
    )


@given(st.data())
def test_i9_incremental_solutions_equal_full_ones(data: st.DataObject) -> None:
    rules = replace(OURS, guarantees_usage=data.draw(st.booleans()))
    specs = {spec.name: spec for spec in data.draw(forests())}
    usage: dict[str, Usage] = {}
    tree, total = make_tree(specs.values()), 10
    solution = solve(ShareInput(tree, {KEY: total}, usage, rules))
    for _ in range(data.draw(st.integers(1, 8))):
        name = data.draw(st.sampled_from(sorted(specs)))
        match data.draw(st.sampled_from(["usage", "total", "numbers", "lends", "gone", "moved"])):
            case "usage":
                usage = {**usage, name: data.draw(usages([specs[name]]))[name]}
            case "total":
                total = data.draw(st.integers(0, 60))
            case "numbers":
                limits = {key: data.draw(AMOUNTS) for key in data.draw(KEYS)}
                specs[name] = replace(specs[name], max=limits, min=dict(limits))
                tree = replace_spec(tree, specs[name])
            case "lends":
                specs[name] = replace(specs[name], lends=not specs[name].lends)
                tree = replace_spec(tree, specs[name])
            case "gone":
                usage = {quota: used for quota, used in usage.items() if quota != name}
            case "moved":
                specs[name] = replace(specs[name], parent=ROOT)
                tree = replace_spec(tree, specs[name])
        snapshot = ShareInput(tree, {KEY: total}, usage, rules)
        solution = solve(snapshot, solution)
        assert_same(solution, solve(replace(snapshot, tree=make_tree(specs.values()))))
        assert_sums(solution)


KEYS = st.sets(st.sampled_from([KEY, "other"]))


def assert_same(first: Solution, second: Solution) -> None:
    names = first.inputs.tree.layout.names
    assert names == second.inputs.tree.layout.names
    for ask in (Solution.share, Solution.minimum, Solution.request, Solution.child_request,
                Solution.limited, Solution.allocated, Solution.guaranteed):  # fmt: skip
        for name in names[1:]:
            assert ask(first, name) == ask(second, name)
    assert first.used_with_children == second.used_with_children


def assert_sums(solution: Solution) -> None:
    tree = solution.inputs.tree
    for at, key in enumerate(tree.keys):
        for row, first, end in tree.layout.levels:
            used = solution.used_with_children[key]
            assert used[row] == solution.used[at, row] + sum(used[first:end])
            below = sum(solution.results.limited[at, first:end])
            assert solution.results.child_request[at, row] == solution.demand[at, row] + below


@given(st.data())
def test_i10_admitted_usage_stays_within_the_limits(data: st.DataObject) -> None:
    specs = data.draw(forests())
    unused = {name: replace(usage, used={}) for name, usage in data.draw(usages(specs)).items()}
    rules = replace(OURS, parents_take_pods=True)
    solution = settle(specs, {KEY: data.draw(st.integers(0, 60))}, unused, rules)
    ledger = Ledger([solution], rules)
    names = st.sampled_from([spec.name for spec in specs])
    for _ in range(data.draw(st.integers(1, 8))):
        mark = ledger.checkpoint()
        units = data.draw(st.lists(st.builds(charge, names, AMOUNTS, st.just(KEY)), max_size=3))
        if try_charge(ledger, units) is not None or data.draw(st.booleans()):
            ledger.rollback(mark)
        for name in ledger.names():
            account = ledger.account(name)
            assert account.used.get(KEY, 0) <= account.share[KEY] <= account.spec.max[KEY]


@given(st.data())
def test_i11_nothing_is_reclaimed_within_the_guarantee(data: st.DataObject) -> None:
    specs = data.draw(forests())
    usage = data.draw(usages(specs))
    solution = settle(specs, {KEY: data.draw(st.integers(0, 60))}, usage)
    ledger = Ledger([solution], OURS)
    over = {overuse.quota for overuse in find_overuse(ledger)}
    for spec in specs:
        account = ledger.account(spec.name)
        if account.used.get(KEY, 0) <= solution.minimum(spec.name)[KEY]:
            assert spec.name not in over
            entitled = find_entitlement(ledger, spec.name)
            units = [RunningUnit("u", {KEY: account.used.get(KEY, 0)})]
            assert choose_victims(units, account.used, entitled, OURS) == ()


@given(st.data())
def test_i12_evictions_come_to_an_end(data: st.DataObject) -> None:
    """Take back over-use, admit what fits, again and again: without a change, it stops."""
    names = ["a", "b", "c"]
    specs = [
        QuotaSpec(name, min={KEY: data.draw(st.integers(0, 5))}, max={KEY: 16}) for name in names
    ]
    total = 16
    sizes = st.lists(st.integers(1, 16), max_size=4)
    units = {
        f"{name}/{at}": PendingUnit(f"{name}/{at}", (charge(name, size, KEY),), float(at))
        for name in names
        for at, size in enumerate(data.draw(sizes))
    }
    running = set(data.draw(st.sets(st.sampled_from(sorted(units))))) if units else set()
    seen = [set(running)]
    while True:
        running -= take_back(specs, total, units, running)
        running |= admit(specs, total, units, running)
        if running == seen[-1]:
            return
        assert running not in seen, "evictions go round in a circle"
        seen.append(set(running))


def size_of(unit: PendingUnit) -> int:
    return unit.charges[0].request[KEY]


def ledger_of(
    specs: list[QuotaSpec], total: int, units: dict[str, PendingUnit], running: set[str]
) -> Ledger:
    usage = {}
    for spec in specs:
        mine = [key for key in units if key.startswith(spec.name)]
        demand = {KEY: sum(size_of(units[key]) for key in mine)}
        used = {KEY: sum(size_of(units[key]) for key in mine if key in running)}
        usage[spec.name] = Usage(demand, demand, used)
    return Ledger([settle(specs, {KEY: total}, usage)], OURS)


def take_back(
    specs: list[QuotaSpec], total: int, units: dict[str, PendingUnit], running: set[str]
) -> set[str]:
    """Evict for the first unit that is entitled to run and finds no room, as little as needed."""
    ledger = ledger_of(specs, total, units, running)
    free = total - sum(size_of(units[key]) for key in running)
    for key in sorted(units.keys() - running):
        mark = ledger.checkpoint()
        is_entitled = try_charge(ledger, units[key].charges) is None
        ledger.rollback(mark)
        if not is_entitled or size_of(units[key]) <= free:
            continue
        evicted: set[str] = set()
        for over in sorted(find_overuse(ledger), key=lambda victim: -victim.over):
            entitled, used = find_entitlement(ledger, over.quota), ledger.account(over.quota).used
            mine = [victim for victim in sorted(running) if victim.startswith(over.quota)]
            live = [RunningUnit(victim, {KEY: size_of(units[victim])}) for victim in mine]
            for victim in reversed(choose_victims(live, used, entitled, OURS)):
                if free < size_of(units[key]):
                    evicted.add(victim.key)
                    free += victim.request[KEY]
        return evicted if free >= size_of(units[key]) else set()
    return set()


def admit(
    specs: list[QuotaSpec],
    total: int,
    units: dict[str, PendingUnit],
    running: set[str],
) -> set[str]:
    ledger = ledger_of(specs, total, units, running)
    free = total - sum(size_of(units[key]) for key in running)
    waiting = [units[key] for key in sorted(units.keys() - running)]
    leftovers = grant_leftovers(ledger, waiting, {})
    admitted = set()
    for unit in waiting:
        mark = ledger.checkpoint()
        is_in = try_charge(ledger, unit.charges) is None
        is_in = is_in or leftovers.try_charge(ledger, unit.key, unit.charges)
        if is_in and size_of(unit) <= free:
            free -= size_of(unit)
            admitted.add(unit.key)
        else:
            ledger.rollback(mark)
    return admitted


@given(st.data())
def test_i13_retried_when_and_only_when_there_is_more_room(data: st.DataObject) -> None:
    specs = data.draw(forests())
    rules = replace(OURS, parents_take_pods=True)
    before, after = (
        Ledger([settle(specs, {KEY: data.draw(st.integers(0, 60))}, usage, rules)], rules)
        for usage in (data.draw(usages(specs)), data.draw(usages(specs)))
    )
    unit = [charge(data.draw(st.sampled_from(specs)).name, data.draw(st.integers(1, 24)), KEY)]
    refusal = try_charge(before, unit)
    assume(isinstance(refusal, QuotaExceeded))
    assert isinstance(refusal, QuotaExceeded)
    if isinstance(refusal, RequestAboveMax):
        assert not has_more_room(refusal, after)
        assert try_charge(after, unit) is not None
        return
    had, has = (
        ledger.account(refusal.quota).share[KEY] - ledger.account(refusal.quota).used.get(KEY, 0)
        for ledger in (before, after)
    )
    assert has_more_room(refusal, after) is (has > had)
    assert not has_more_room(refusal, before)
    if try_charge(after, unit) is None:
        assert has > had


@given(levels(), st.integers(0, 200))
def test_i14_a_larger_total_costs_at_most_rounding(level: Level, total: int) -> None:
    rounds = len(level.wants)
    pairs = zip(share_level(total, level), share_level(total + 1, level), strict=True)
    assert all(before - after <= rounds for before, after in pairs)


@given(st.data())
def test_leftovers_never_exceed_the_total(data: st.DataObject) -> None:
    specs = data.draw(forests())
    usage = {
        name: replace(usage_of_quota, used={})
        for name, usage_of_quota in data.draw(usages(specs)).items()
    }
    total = data.draw(st.integers(0, 40))
    rules = replace(OURS, parents_take_pods=True, scales_min=True)
    assume(consistent(specs))
    ledger = Ledger([settle(specs, {KEY: total}, usage, rules)], rules)
    pending = [
        PendingUnit(name, (charge(name, usage_of_quota.demand[KEY], KEY),), float(at))
        for at, (name, usage_of_quota) in enumerate(usage.items())
        if usage_of_quota.demand[KEY]
    ]
    leftovers = grant_leftovers(ledger, pending, {})
    for unit in pending:
        if try_charge(ledger, unit.charges) is not None:
            leftovers.try_charge(ledger, unit.key, unit.charges)
    top = [spec.name for spec in specs if spec.parent == ROOT]
    assert sum(ledger.account(name).used.get(KEY, 0) for name in top) <= total
    for spec in specs:
        assert ledger.account(spec.name).used.get(KEY, 0) <= spec.max[KEY]
