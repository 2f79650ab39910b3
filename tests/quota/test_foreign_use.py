"""Pods of other schedulers, which nobody can refuse: what a quota takes with them from others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.quota.scene import OURS, charge, make_ledger, quota, settle
from tests.quota.test_supply import IN_POOL
from tests.quota.trees import KEY, forests

from koord.core.quota.admission import find_blocking_reason
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import KOORDINATOR, ROOT, QuotaCharge, QuotaSpec, Usage
from koord.core.quota.tree import find_uncharged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from koord.core.model.pods import Pod
    from koord.core.quota.model import QuotaRules

TREE = [
    quota("org", min=24, max=24, is_parent=True),
    quota("liar", "org", min=8, max=8),
    quota("sibling", "org", min=16, max=16),
]


def foreign_use(amount: int, own: int = 0, key: str = "cpu") -> Usage:
    everything = {key: amount + own}
    return Usage(everything, everything, everything, foreign_used={key: amount})


def test_a_sibling_starts_although_a_child_uses_a_million_without_being_asked() -> None:
    ledger = make_ledger(TREE, 24, {"liar": foreign_use(1_000_000), "sibling": 16})
    assert ledger.account("liar").used == {"cpu": 1_000_000}
    assert ledger.account("org").used == {"cpu": 8}
    assert find_blocking_reason(ledger, charge("sibling", 16)) is None
    assert find_blocking_reason(ledger, charge("liar", 1)) is not None


def test_evicting_own_pods_of_the_child_relieves_the_parent_only_below_max() -> None:
    """Otherwise pods would be evicted for a sibling that gains nothing from that."""
    ledger = make_ledger(TREE, 24, {"liar": foreign_use(6, own=8)})
    assert ledger.account("org").used == {"cpu": 8}
    mark = ledger.checkpoint()
    ledger.charge(charge("liar", -4))
    assert ledger.account("org").used == {"cpu": 8}
    ledger.charge(charge("liar", -4))
    assert ledger.account("org").used == {"cpu": 6}
    ledger.rollback(mark)
    assert ledger.account("org").used == {"cpu": 8}
    assert ledger.account("org").foreign == {}


def test_koordinator_charges_everything() -> None:
    ledger = make_ledger(TREE, 24, {"liar": foreign_use(100)}, rules=KOORDINATOR)
    assert ledger.account("org").used == {"cpu": 100}


@st.composite
def mixed_usages(draw: st.DrawFn, specs: Sequence[QuotaSpec]) -> dict[str, Usage]:
    amounts = st.integers(0, 30)
    return {spec.name: foreign_use(draw(amounts), draw(amounts), KEY) for spec in specs}


def without_foreign(usage: Mapping[str, Usage], name: str) -> dict[str, Usage]:
    mine = usage[name]
    own = mine.used[KEY] - mine.foreign_used[KEY]
    return {**usage, name: foreign_use(0, own, KEY)}


def charges(ledger: Ledger) -> dict[str, tuple[int, int]]:
    accounts = {name: ledger.account(name) for name in ledger.names()}
    return {name: (one.used.get(KEY, 0), one.foreign.get(KEY, 0)) for name, one in accounts.items()}


@given(st.data(), st.integers(0, 80))
def test_no_quota_above_is_charged_more_than_max_for_foreign_use(
    data: st.DataObject, total: int
) -> None:
    specs = data.draw(forests())
    usage = data.draw(mixed_usages(specs))
    liar = data.draw(st.sampled_from(specs))
    with_lie = make_ledger(specs, {KEY: total}, usage)
    honest = make_ledger(specs, {KEY: total}, without_foreign(usage, liar.name))
    for name in with_lie.account(liar.name).path[1:]:
        more = with_lie.account(name).used.get(KEY, 0) - honest.account(name).used.get(KEY, 0)
        assert 0 <= more <= liar.max[KEY]


@given(st.data(), st.integers(0, 80), st.sampled_from([OURS, replace(OURS, guarantees_usage=True)]))
def test_siblings_keep_their_shares_but_for_max(
    data: st.DataObject, total: int, rules: QuotaRules
) -> None:
    """However much a quota's foreign pods use, the others get what they get at its max."""
    specs = [replace(spec, lends=True) for spec in data.draw(forests())]
    usage = data.draw(mixed_usages(specs))
    liar = data.draw(st.sampled_from([spec for spec in specs if not is_above(specs, spec)]))
    most = foreign_use(liar.max[KEY], 0, KEY)
    more = foreign_use(liar.max[KEY] + data.draw(st.integers(1, 10**6)), 0, KEY)
    at_max = settle(specs, {KEY: total}, {**usage, liar.name: most}, rules)
    above = settle(specs, {KEY: total}, {**usage, liar.name: more}, rules)
    for spec in specs:
        assert at_max.share(spec.name) == above.share(spec.name)


def is_above(specs: Sequence[QuotaSpec], spec: QuotaSpec) -> bool:
    return any(other.parent == spec.name for other in specs)


@given(st.data(), st.lists(st.tuples(st.integers(0, 5), st.integers(-20, 20)), max_size=6))
def test_charges_in_a_ledger_are_as_if_computed_anew(
    data: st.DataObject, changes: list[tuple[int, int]]
) -> None:
    specs = data.draw(forests())
    usage = data.draw(mixed_usages(specs))
    ledger = make_ledger(specs, {KEY: 50}, usage)
    before = charges(ledger)
    mark = ledger.checkpoint()
    for at, amount in changes:
        name = specs[at % len(specs)].name
        own = usage[name].used[KEY] - usage[name].foreign_used[KEY]
        change = max(amount, -own)
        ledger.charge(QuotaCharge(name, {KEY: change}))
        usage[name] = foreign_use(usage[name].foreign_used[KEY], own + change, KEY)
        assert charges(ledger) == charges(make_ledger(specs, {KEY: 50}, usage))
    ledger.rollback(mark)
    assert charges(ledger) == before


@given(st.data())
def test_the_root_is_charged_with_all_but_what_is_uncharged(data: st.DataObject) -> None:
    specs = data.draw(forests())
    usage = data.draw(mixed_usages(specs))
    solution = settle(specs, {KEY: 50}, usage)
    ledger = Ledger([solution], OURS)
    top = [spec.name for spec in specs if spec.parent == ROOT]
    uncharged = find_uncharged(solution.inputs.tree, usage, OURS).get(KEY, 0)
    everything = sum(own.used[KEY] for own in usage.values())
    assert ledger.used_by(top, KEY) == everything - uncharged


LIAR = make_quota("liar", "default", min={GPU: 8}, max={GPU: 8})
TEAM = make_quota("team", "default", min={GPU: 32}, max={GPU: 64})
POOL = make_quota("pool", "default", created=1.0, is_parent=True, tree_id="t", is_tree_root=True,
                  min={GPU: 16}, max={GPU: 64}, total={GPU: 16})  # fmt: skip


def foreign(name: str, node: str, quota_name: str = "", gpus: int = 8) -> Pod:
    return make_pod(name).gpu(gpus).quota(quota_name).running(node).not_ours().build()


def total(cluster: FakeCluster) -> int:
    cluster.state.open_ledger()
    return cluster.state.quotas.solutions[""].inputs.total.get(GPU, 0)


def test_foreign_pods_of_a_quota_give_its_tree_nothing_to_share_out() -> None:
    """Supply and use are of the same pods: those beyond max are in neither."""
    cluster = make_cluster(4).quotas(LIAR, TEAM)
    cluster.pods(*(foreign(f"f-{at}", "n0", "liar") for at in range(50)))
    ledger = cluster.state.open_ledger()
    assert ledger.account("liar").used[GPU] == 400
    assert total(cluster) == 32


@pytest.mark.parametrize(("is_closed", "taken"), [(False, 8), (True, 0)])
def test_foreign_pods_without_a_quota_take_their_node_at_most(
    is_closed: bool,  # noqa: FBT001 - a parameter of the test
    taken: int,
) -> None:
    cluster = make_cluster(4).quotas(TEAM, replace(POOL, selector=IN_POOL))
    for name in ("n0", "n1", "n2"):
        closed = is_closed and name == "n0"
        node = make_node(name).label("pool", "a").gpu(8).build()
        cluster.nodes(replace(node, is_unschedulable=closed))
    before = total(cluster)
    cluster.pods(*(foreign(f"f-{at}", "n0") for at in range(50)))
    assert before - total(cluster) == taken
