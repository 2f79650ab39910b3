"""Who uses idle guarantees of whom.

Among the children of one parent, what is used beyond guarantees comes first from what nobody is
guaranteed; the rest is lent. Only how much is lent follows from the rules, not by whom to whom:
each borrower is taken to have a part of every idle guarantee, in proportion. This is for people to
read; nothing is decided by it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from koord.core.quota.model import QuotaName
from koord.core.quota.scale import felt_min
from koord.core.quota.solve import KeySolution, Solution


@dataclass(frozen=True, slots=True)
class Loan:
    """A part of one quota's idle guarantee that another one of the same parent uses."""

    lender: QuotaName
    borrower: QuotaName
    resource: str
    amount: int


def find_loans(solution: Solution) -> tuple[Loan, ...]:
    """Return all loans of a tree, by resource, then in order of the tree."""
    names = solution.snapshot.tree.layout.names
    return tuple(
        Loan(names[lender], names[borrower], key, amount)
        for key, solved in sorted(solution.keys.items())
        for lender, borrower, amount in _find(solved, solution.used_with_children[key])
    )


def _find(solved: KeySolution, used: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    for parent, first, end in solved.question.layout.levels:
        asked = solved.level(parent)
        if asked is not None:
            level, scaled, shares = asked
            floors = [*map(felt_min, level.minimum, scaled, level.wants, shares)]
            for lender, borrower, amount in lend(used[first:end], floors, level.total or 0):
                yield first + lender, first + borrower, amount


def lend(used: Sequence[int], floors: Sequence[int], total: int) -> Iterator[tuple[int, int, int]]:
    """Yield (lender, borrower, amount), by place; ``total`` is what all of them share out."""
    idle = [max(0, floor - amount) for floor, amount in zip(floors, used, strict=True)]
    over = [max(0, amount - floor) for floor, amount in zip(floors, used, strict=True)]
    free = max(0, total - sum(floors))
    lent = min(max(0, sum(over) - free), sum(idle))
    pairs = [(lender, borrower) for lender in range(len(idle)) for borrower in range(len(over))]
    # Rounded down as a running total, so that the parts add up to the whole.
    done = given = 0
    for lender, borrower in pairs if lent else ():
        done += idle[lender] * over[borrower]
        upto = lent * done // (sum(idle) * sum(over))
        if upto > given:
            yield lender, borrower, upto - given
        given = upto
