"""What every quota uses and may use, while units are tried on it.

A ledger belongs to one planning cycle and may share its undo log. Charging a unit adds what it asks
to its quota and to all above; a rollback takes back everything since a checkpoint. Whether a charge
is allowed is decided in ``admission``, not here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from koord.core.engine.cycle import Mark, UndoLog
from koord.core.model.units import Amounts
from koord.core.quota.model import NOTHING, QuotaCharge, QuotaName, QuotaRules, QuotaSpec
from koord.core.quota.solve import Solution
from koord.core.quota.tree import pass_on

Check: TypeAlias = Callable[[QuotaCharge], str]
"""A check of somebody else's: what it has against a charge, empty if nothing."""


@dataclass(frozen=True, slots=True)
class Account:
    """One quota of the ledger: its numbers, and the accounts from itself up to the top.

    ``share`` is the fair share of the resources that max names. ``used`` and
    ``non_preemptible_used`` count the pods of all quotas below, too; they change while units are
    charged.
    """

    spec: QuotaSpec
    share: Amounts
    used: dict[str, int]
    non_preemptible_used: dict[str, int]
    path: tuple[QuotaName, ...]
    capacity: Amounts | None = None
    """What its tree has to share out in all; None if nobody says."""
    kept: dict[str, int] = field(default_factory=dict)
    """The part of ``used`` that no pod uses: it is kept for gangs."""
    foreign: dict[str, int] = field(default_factory=dict)
    """The part of ``used`` of pods that other schedulers placed."""

    def limit(self, rules: QuotaRules) -> Amounts:
        return self.share if rules.limits_by_share else self.spec.max

    def charged_above(self, key: str) -> int:
        """Return what the quota above is charged with for this one."""
        return self.pass_on(key)[0]

    def charges_above(self) -> dict[str, int]:
        return {key: self.charged_above(key) for key in self.used}

    def pass_on(self, key: str) -> tuple[int, int]:
        """Return that, and the part of it of other schedulers' pods."""
        used = self.used.get(key, 0)
        foreign = self.foreign.get(key, 0)
        return pass_on(used, foreign, self.spec.max.get(key)) if foreign else (used, 0)


class Ledger:
    """The accounts of all trees, opened when first asked for.

    Quotas without account have no limit and are not counted.
    """

    def __init__(
        self,
        solutions: Iterable[Solution],
        rules: QuotaRules,
        checks: Mapping[str, Check] | None = None,
        undo: UndoLog | None = None,
    ) -> None:
        self.rules = rules
        self._undo = undo or UndoLog()
        self.checks = checks or {}
        """Checks of others by name, after our own of the quota itself."""
        self._solutions = {
            name: solution
            for solution in solutions
            for name in solution.inputs.tree.layout.names[1:]
        }
        self._accounts: dict[QuotaName, Account] = {}

    def names(self) -> list[QuotaName]:
        return sorted(self._solutions)

    def solution(self, name: QuotaName) -> Solution:
        return self._solutions[name]

    def account(self, name: QuotaName) -> Account:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = _open(self._solutions[name], name)
        return account

    def find(self, name: QuotaName) -> Account | None:
        return self.account(name) if name in self._solutions else None

    def used_by(self, names: Iterable[QuotaName], key: str) -> int:
        """Return what several quotas charge to the one above them."""
        return sum(self.account(name).charged_above(key) for name in names)

    def checkpoint(self) -> Mark:
        return self._undo.checkpoint()

    def rollback(self, mark: Mark) -> None:
        """Take back every charge since ``mark``; on a cycle's log, everything else too."""
        self._undo.rollback(mark)

    def charge(self, charge: QuotaCharge, *, is_kept: bool = False) -> None:
        """Count what is asked of a quota as used, there and in all quotas above."""
        account = self.find(charge.quota)
        if account is None:
            return
        request, non_preemptible = (
            mask(charge.request, account),
            mask(charge.non_preemptible, account),
        )
        foreign: Amounts = NOTHING
        for name in account.path:
            above = self.account(name)
            before = (
                {key: above.pass_on(key) for key in request} if above.foreign or foreign else {}
            )
            self._count(above.used, request)
            self._count(above.foreign, foreign)
            self._count(above.non_preemptible_used, non_preemptible)
            if is_kept:
                self._count(above.kept, request)
            if before:
                now = {key: above.pass_on(key) for key in request}
                request = {key: now[key][0] - before[key][0] for key in now}
                foreign = {key: now[key][1] - before[key][1] for key in now}

    def _count(self, amounts: dict[str, int], more: Amounts) -> None:
        for key, amount in more.items():
            before = amounts.get(key)
            self._undo.push(_restore, amounts, key, before)
            _restore(amounts, key, (before or 0) + amount or (None if before else 0))


def _restore(amounts: dict[str, int], key: str, before: int | None) -> None:
    if before is None:
        del amounts[key]
    else:
        amounts[key] = before


def mask(request: Amounts, account: Account) -> dict[str, int]:
    """Return what a quota counts of a request: the resources that its max names."""
    return {key: amount for key, amount in request.items() if key in account.spec.max}


def _open(solution: Solution, name: QuotaName) -> Account:
    tree = solution.inputs.tree
    row = tree.layout.row_of[name]
    spec = tree.specs[row]
    assert spec is not None, "the root has no account"  # noqa: S101 - for the type checker
    return Account(
        spec,
        solution.share(name),
        _at(row, solution.used_with_children),
        dict(solution.non_preemptible_used_with_children.get(name, {})),
        tree.path(name)[:-1],
        solution.inputs.total,
        foreign=_at(row, solution.foreign_with_children),
    )


def _at(row: int, columns: Mapping[str, Sequence[int]]) -> dict[str, int]:
    return {key: column[row] for key, column in columns.items() if column[row]}
