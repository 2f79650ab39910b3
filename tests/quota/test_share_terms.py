"""The terms of a share add up to it, and loans match idle guarantees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.quota.scene import quota, settle, wants
from tests.quota.trees import KEY, forests, usages

from koord.core.quota.ledger import Ledger
from koord.core.quota.model import QuotaRules
from koord.core.quota.share_terms import find_loans, find_terms, lend
from koord.core.quota.solve import ShareInput, solve
from koord.core.quota.status import QuotaCondition, find_conditions, summarise
from koord.core.quota.tree import make_tree

OURS = QuotaRules()
GUARANTEEING = QuotaRules(guarantees_usage=True)


@given(st.data(), st.integers(0, 60), st.sampled_from([OURS, GUARANTEEING]))
def test_terms_lead_to_the_share(data: st.DataObject, total: int, rules: QuotaRules) -> None:
    specs = data.draw(forests())
    solution = solve(ShareInput(make_tree(specs), {KEY: total}, data.draw(usages(specs)), rules))
    for spec in specs:
        for term in find_terms(solution, spec):
            assert term.share == solution.share(spec.name)[KEY]
            assert term.starts == (
                term.want if term.want <= term.floor and term.lends else term.floor
            )
            assert 0 <= term.borrowed <= term.left
            assert not term.borrowed or term.weight <= term.weights
            assert term.floor >= term.scaled
            assert term.want <= max(spec.max[KEY], 0)
            # Who gets less than it wants has left nothing that its weight entitles it to.
            if term.weight and term.share < term.want and term.weights == term.weight:
                assert term.borrowed == term.left


def test_terms_of_a_borrower() -> None:
    specs = [quota("org", min=16, max=16), quota("a", "org", min=4), quota("b", "org", min=12)]
    solution = settle(specs, 16, {"a": wants(10, used=8), "b": wants(8)})
    (term,) = find_terms(solution, specs[1])
    assert (term.total, term.want, term.floor, term.starts) == (16, 10, 4, 4)
    assert (term.left, term.weight, term.weights, term.borrowed) == (4, 1 << 40, 1 << 40, 4)


def test_terms_where_guarantees_are_scaled() -> None:
    specs = [quota("a", min=10, max=20, weight=3), quota("b", min=30, max=40, weight=1)]
    solution = settle(specs, 20, {"a": 20, "b": 40})
    (term,) = find_terms(solution, specs[0])
    assert (term.minimum, term.scaled, term.starts, term.left, term.share) == (10, 5, 5, 0, 5)


@pytest.mark.parametrize(
    ("used", "floors", "total", "loans"),
    [
        ([8, 0], [4, 12], 16, [(1, 0, 4)]),
        ([8, 0], [4, 8], 16, []),
        ([10, 0], [4, 8], 16, [(1, 0, 2)]),
        ([4, 12], [4, 12], 16, []),
        ([9, 0, 0], [0, 6, 3], 9, [(1, 0, 6), (2, 0, 3)]),
        ([2, 1, 0, 0], [0, 0, 2, 1], 3, [(2, 0, 1), (3, 0, 1), (2, 1, 1)]),
        ([20, 0], [4, 8], 0, [(1, 0, 8)]),
    ],
)
def test_loans_between_siblings(
    used: list[int], floors: list[int], total: int, loans: list[tuple[int, int, int]]
) -> None:
    lent = list(lend(used, floors, total, idle(used, floors)))
    assert sum(amount for *_, amount in lent) == sum(amount for *_, amount in loans)
    if len(loans) < 3:
        assert lent == loans


def idle(used: list[int], floors: list[int]) -> list[int]:
    return [max(0, floor - amount) for floor, amount in zip(floors, used, strict=True)]


def test_a_quota_that_does_not_lend_keeps_its_idle_guarantee() -> None:
    specs = [quota("a", max=12), quota("b", min=4, lends=False), quota("c", min=4)]
    loans = find_loans(settle(specs, 12, {"a": wants(10, used=10)}))
    assert [(loan.lender, loan.amount) for loan in loans] == [("c", 4)]
    assert find_loans(settle(specs[:2], 12, {"a": wants(10, used=10)})) == ()


@given(st.data(), st.integers(0, 60), st.sampled_from([OURS, GUARANTEEING]))
def test_nobody_lends_what_it_requests(data: st.DataObject, total: int, rules: QuotaRules) -> None:
    """Whoever is named as a lender has the condition Lending."""
    specs = data.draw(forests())
    ledger = Ledger([settle(specs, {KEY: total}, data.draw(usages(specs)), rules)], rules)
    lenders = {loan.lender for loan in find_loans(ledger.solution(specs[0].name))}
    for spec in specs:
        findings = find_conditions(summarise(ledger, spec.name), (), None, lends=rules.lends(spec))
        is_lending = any(
            finding.holds for finding in findings if finding.kind is QuotaCondition.LENDING
        )
        assert is_lending or spec.name not in lenders


def test_a_quota_that_wants_its_guarantee_back_lends_nothing() -> None:
    specs = [quota("a", max=16), quota("b", min=8)]
    usage = {"a": wants(16, used=16), "b": wants(8)}
    assert find_loans(settle(specs, 16, usage)) == ()


AMOUNTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=6)


@given(AMOUNTS, st.integers(0, 100))
def test_loans_do_not_exceed_idle_guarantees(pairs: list[tuple[int, int]], total: int) -> None:
    used, floors = [amount for amount, _ in pairs], [floor for _, floor in pairs]
    lent, borrowed = [0] * len(used), [0] * len(used)
    for lender, borrower, amount in lend(used, floors, total, idle(used, floors)):
        assert amount > 0
        lent[lender] += amount
        borrowed[borrower] += amount
    for at, (amount, floor) in enumerate(pairs):
        assert lent[at] <= max(0, floor - amount)
        assert borrowed[at] <= max(0, amount - floor) + len(used)
    over = sum(max(0, amount - floor) for amount, floor in pairs)
    free = max(0, total - sum(floors))
    assert sum(lent) == min(max(0, over - free), sum(max(0, b - a) for a, b in pairs))


def test_loans_name_lender_and_borrower() -> None:
    specs = [quota("org", min=16, max=16), quota("a", "org", min=4), quota("b", "org", min=12)]
    (loan,) = find_loans(settle(specs, 16, {"a": wants(10, used=8)}))
    assert (loan.lender, loan.borrower, loan.resource, loan.amount) == ("b", "a", "cpu", 4)
