"""Leftover shares that are too small for every next unit are pooled for one."""

from __future__ import annotations

from tests.quota.scene import GPU, KOORDINATOR, OURS, make_ledger, quota, wants

from koord.core.quota.admission import try_charge
from koord.core.quota.leftovers import Leftovers, PendingUnit, grant_leftovers
from koord.core.quota.model import QuotaCharge, QuotaRules, QuotaSpec, Usage
from koord.core.quota.reclaim import find_overuse


def unit(
    name: str, owner: str, gpus: int, since: float = 0.0, *, is_non_preemptible: bool = False
) -> PendingUnit:
    request = {GPU: gpus}
    return PendingUnit(
        name, (QuotaCharge(owner, request, request if is_non_preemptible else {}),), since
    )


def team(name: str, parent: str = "", **more: int) -> QuotaSpec:
    above = {"parent": parent} if parent else {}
    return quota(name, key=GPU, **{"max": 16, **above, **more})


def gpus(requested: int, used: int = 0) -> Usage:
    return wants(requested, used, GPU)


class TestE17:
    """Two teams of equal weight, 16 GPUs, and one gang of 16 each."""

    SPECS = (team("a"), team("b"))
    GANGS = (unit("a/1", "a", 16, since=1), unit("b/1", "b", 16, since=2))

    def ledger(self, a: Usage, b: Usage, rules: QuotaRules = OURS):
        return make_ledger(self.SPECS, {GPU: 16}, {"a": a, "b": b}, rules=rules)

    def test_neither_fits_its_share(self) -> None:
        ledger = self.ledger(gpus(16), gpus(16))
        for gang in self.GANGS:
            assert try_charge(ledger, gang.charges) is not None

    def test_the_one_that_waits_longest_gets_all(self) -> None:
        ledger = self.ledger(gpus(16), gpus(16))
        packing = grant_leftovers(ledger, self.GANGS, {})
        assert packing.granted == ("a/1",)
        assert packing.try_charge(ledger, "a/1", self.GANGS[0].charges)
        assert ledger.account("a").used == {GPU: 16}
        assert not packing.try_charge(ledger, "b/1", self.GANGS[1].charges)

    def test_while_it_runs_the_other_waits(self) -> None:
        ledger = self.ledger(gpus(16, 16), gpus(16))
        assert grant_leftovers(ledger, self.GANGS[1:], {"a": 5}).granted == ()
        (over,) = find_overuse(ledger)
        assert (over.quota, over.over) == ("a", 8)

    def test_then_the_other_gets_all_though_the_first_has_older_work(self) -> None:
        ledger = self.ledger(gpus(16), gpus(16))
        gangs = (unit("a/2", "a", 16, since=1.5), self.GANGS[1])
        assert grant_leftovers(ledger, gangs, {"a": 3}).granted == ("b/1",)

    def test_trying_leaves_no_trace(self) -> None:
        ledger = self.ledger(gpus(16), gpus(16))
        grant_leftovers(ledger, self.GANGS, {})
        assert ledger.account("a").used == ledger.account("b").used == {}

    def test_koordinator_packs_nothing(self) -> None:
        ledger = self.ledger(gpus(16), gpus(16), KOORDINATOR)
        assert grant_leftovers(ledger, self.GANGS, {}) == Leftovers()


def test_a_share_that_others_can_use_is_no_leftover() -> None:
    ledger = make_ledger([team("a"), team("b")], {GPU: 16}, {"a": gpus(16), "b": gpus(16)})
    pending = [unit("a/1", "a", 16, since=1), *(unit(f"b/{n}", "b", 1, since=9) for n in range(8))]
    assert grant_leftovers(ledger, pending, {}).granted == ()


def test_the_part_that_others_cannot_use_is_a_leftover() -> None:
    specs = [team("a"), team("b"), team("c")]
    usage = {"a": gpus(5), "b": gpus(5), "c": gpus(4)}
    ledger = make_ledger(specs, {GPU: 12}, usage)
    pending = [unit("a/1", "a", 5, since=1), unit("b/1", "b", 5, since=2), unit("c/1", "c", 4)]
    assert grant_leftovers(ledger, pending, {}).granted == ("a/1",)


def test_leftovers_do_not_exceed_max() -> None:
    specs = [team("a", max=12), team("b")]
    ledger = make_ledger(specs, {GPU: 16}, {"a": gpus(16), "b": gpus(16)})
    pending = [unit("a/1", "a", 16, since=1), unit("b/1", "b", 16, since=2)]
    assert grant_leftovers(ledger, pending, {}).granted == ("b/1",)


def test_leftovers_do_not_exceed_the_non_preemptible_budget() -> None:
    specs = [team("a", min=4), team("b")]
    ledger = make_ledger(specs, {GPU: 16}, {"a": gpus(16), "b": gpus(16)})
    pending = [
        unit("a/1", "a", 16, since=1, is_non_preemptible=True),
        unit("b/1", "b", 16, since=2),
    ]
    assert grant_leftovers(ledger, pending, {}).granted == ("b/1",)


def test_shares_of_quotas_that_do_not_lend_are_no_leftovers() -> None:
    specs = [team("a"), team("b", min=4, lends=False)]
    ledger = make_ledger(specs, {GPU: 16}, {"a": gpus(16), "b": gpus(0)})
    assert grant_leftovers(ledger, [unit("a/1", "a", 16)], {}).granted == ()
    assert grant_leftovers(ledger, [unit("a/1", "a", 13)], {}).granted == ()


def test_leftovers_of_other_subtrees_count() -> None:
    specs = [
        team("org1", max=32),
        team("org2", max=32),
        *(team(name, "org1") for name in ("a", "b")),
        *(team(name, "org2") for name in ("c", "d")),
    ]
    ledger = make_ledger(specs, {GPU: 16}, {name: gpus(16) for name in "abcd"})
    pending = [unit(f"{name}/1", name, 16, since=ord(name)) for name in "dcba"]
    packing = grant_leftovers(ledger, pending, {})
    assert packing.granted == ("a/1",)
    assert packing.try_charge(ledger, "a/1", pending[-1].charges)
    assert ledger.account("org1").used == {GPU: 16}


def test_leftovers_used_meanwhile_are_gone() -> None:
    specs = [team("a"), team("b")]
    ledger = make_ledger(specs, {GPU: 16}, {"a": gpus(16), "b": gpus(16)})
    gang = unit("a/1", "a", 16)
    packing = grant_leftovers(ledger, [gang, unit("b/1", "b", 16, since=2)], {})
    ledger.charge(QuotaCharge("b", {GPU: 1}))
    assert not packing.try_charge(ledger, "a/1", gang.charges)


def test_leftovers_granted_at_the_top_are_not_granted_again_below() -> None:
    """A gang takes what a sibling of the root does not use yet; a cousin's cannot have it, too."""
    specs = [
        team("org", min=14, max=39, weight=39),
        team("other", max=28, weight=28),
        *(team(name, "org", max=21, weight=21) for name in ("a", "b")),
    ]
    usage = {"other": gpus(12), "a": gpus(12), "b": gpus(12)}
    ledger = make_ledger(specs, {GPU: 22}, usage)
    pending = [unit(name, name, 12, since=at) for at, name in enumerate(("other", "a", "b"))]
    packing = grant_leftovers(ledger, pending, {})
    for waiting in pending:
        if try_charge(ledger, waiting.charges) is not None:
            packing.try_charge(ledger, waiting.key, waiting.charges)
    assert ledger.used_by(("org", "other"), GPU) <= 22
