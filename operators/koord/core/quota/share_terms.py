"""How a fair share came about, and who uses idle guarantees of whom: for people to read.

Nothing is decided here, and nothing computed twice: the terms are those that the solver worked with
(``solve``), in its order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from koord.core.quota.entitlement import ScaledMin
from koord.core.quota.fair_share import effective_min, grant_guarantees
from koord.core.quota.model import ROOT, QuotaName, QuotaSpec
from koord.core.quota.solve import Level, Solution


@dataclass(frozen=True, slots=True)
class ShareTerms:
    """How the share of one resource came about.

    The quota wants ``want``: what its pods and children request (``demand``), at least min if it
    does not lend, at most max. Guaranteed is ``floor``: ``minimum``, as scaled, or what is
    guaranteed of use. From these it ``starts`` with its part. What ``total``, the share of the
    parent, then has ``left`` goes to all that want more, by ``weight`` of all their ``weights``, in
    rounds until nobody takes any: it adds ``borrowed``.
    """

    resource: str
    total: int
    own: int
    """Demand of the parent's own pods, which are served before those who borrow."""
    demand: int
    want: int
    minimum: int
    scaled: int
    floor: int
    lends: bool
    starts: int
    left: int
    weight: int
    weights: int
    share: int
    mins: int
    """The sum of the mins of all children of the parent."""

    @property
    def borrowed(self) -> int:
        return self.share - self.starts


@dataclass(frozen=True, slots=True)
class Loan:
    """A part of one quota's idle guarantee that another one of the same parent uses."""

    lender: QuotaName
    borrower: QuotaName
    resource: str
    amount: int


def find_terms(solution: Solution, spec: QuotaSpec) -> tuple[ShareTerms, ...]:
    """Return the terms of every resource that is divided among a quota and its siblings."""
    row = solution.inputs.tree.layout.row_of[spec.name]
    made = (_find_terms(solution, key, row) for key in solution.inputs.tree.keys)
    return tuple(terms for terms in made if terms is not None and terms.resource in spec.max)


def _find_terms(solution: Solution, key: str, row: int) -> ShareTerms | None:
    tree = solution.inputs.tree
    level = solution.level(key, tree.layout.parent[row])
    if level is None:
        return None
    at = row - level.first
    floors = np.maximum(level.scaled, level.guaranteed)
    starts = grant_guarantees(floors, np.array(level.wants), np.array(level.lends)).tolist()
    wanting = [
        weight
        for weight, want, start in zip(level.weights, level.wants, starts, strict=True)
        if want > start
    ]
    return ShareTerms(
        resource=key,
        total=level.total,
        own=level.own,
        demand=int(solution.results.child_request[tree.keys.index(key), row]),
        want=level.wants[at],
        minimum=level.minimum[at],
        scaled=level.scaled[at],
        floor=int(floors[at]),
        lends=level.lends[at],
        starts=starts[at],
        left=max(0, level.total - sum(starts) - level.own),
        weight=level.weights[at],
        weights=sum(wanting),
        share=level.share[at],
        mins=sum(level.minimum),
    )


def find_scaled(solution: Solution, spec: QuotaSpec, key: str) -> ScaledMin | None:
    """Return why less than the min of a quota is guaranteed; None if it is not."""
    row = solution.inputs.tree.layout.row_of[spec.name]
    terms = _find_terms(solution, key, row) if key in solution.inputs.tree.keys else None
    return None if terms is None else explain_scaling(terms, spec.parent)


def explain_scaling(terms: ShareTerms, parent: QuotaName) -> ScaledMin | None:
    """Return why a min was scaled down; None if it was not, or only because little is asked.

    ``parent`` may be empty for the root, whose total does not follow from what is asked.
    """
    above = "" if parent == ROOT else parent
    felt = effective_min(terms.minimum, terms.scaled, terms.want, terms.share)
    if (felt if above else terms.scaled) >= terms.minimum:
        return None
    return ScaledMin(terms.resource, terms.minimum, above, terms.mins, terms.total)


def find_loans(solution: Solution) -> tuple[Loan, ...]:
    """Return all loans of a tree, by resource, then in order of the tree.

    Among the children of one parent, what is used beyond guarantees comes first from what nobody
    is guaranteed; the rest is lent, as far as others do not request it. Only how much is lent
    follows from the rules, not by whom to whom: each borrower is taken to have a part of every idle
    guarantee, in proportion.
    """
    tree = solution.inputs.tree
    names = tree.layout.names
    return tuple(
        Loan(names[lender], names[borrower], key, amount)
        for key in tree.keys
        for lender, borrower, amount in _find_loans(solution, key)
    )


def _find_loans(solution: Solution, key: str) -> Iterator[tuple[int, int, int]]:
    for parent, first, end in solution.inputs.tree.layout.levels:
        level = solution.level(key, parent)
        if level is not None:
            floors, idle = _find_idle(solution, key, level, first, end)
            used = solution.used_with_children[key][first:end]
            for lender, borrower, amount in lend(used, floors, level.total, idle):
                yield first + lender, first + borrower, amount


def find_lent(solution: Solution, key: str) -> Mapping[QuotaName, int]:
    """Return how much of a resource each quota lends: the sums of its loans, without the pairs."""
    names = solution.inputs.tree.layout.names
    lent: dict[QuotaName, int] = {}
    for parent, first, end in solution.inputs.tree.layout.levels:
        level = solution.level(key, parent)
        if level is None:
            continue
        floors, idle = _find_idle(solution, key, level, first, end)
        used = solution.used_with_children[key][first:end]
        amounts = lend_in_all(used, floors, level.total, idle)
        lent.update({names[first + row]: n for row, n in enumerate(amounts) if n})
    return lent


def _find_idle(
    solution: Solution, key: str, level: Level, first: int, end: int
) -> tuple[list[int], list[int]]:
    """Return what the children of a parent are guaranteed, and how much of it is idle."""
    floors = [*map(effective_min, level.minimum, level.scaled, level.wants, level.share)]
    used = solution.used_with_children[key][first:end]
    # What a quota requests of its guarantee it does not lend, even if others use it.
    kept = map(max, used, level.share)
    idle = [
        max(0, floor - amount) if may_lend else 0
        for floor, amount, may_lend in zip(floors, kept, level.lends, strict=True)
    ]
    return floors, idle


def lend_in_all(
    used: Sequence[int], floors: Sequence[int], total: int, idle: Sequence[int]
) -> list[int]:
    """Return how much each lends to all borrowers together; as ``lend``, without the pairs."""
    _, lent = _find_lent_total(used, floors, total, idle)
    most = sum(idle)
    upto = [lent * done // most if lent else 0 for done in accumulate(idle)]
    return [now - before for before, now in pairwise((0, *upto))]


def _find_lent_total(
    used: Sequence[int], floors: Sequence[int], total: int, idle: Sequence[int]
) -> tuple[list[int], int]:
    """Return what each uses beyond its guarantee, and how much of that all together have lent."""
    over = [max(0, amount - floor) for floor, amount in zip(floors, used, strict=True)]
    free = max(0, total - sum(floors))
    return over, min(max(0, sum(over) - free), sum(idle))


def lend(
    used: Sequence[int], floors: Sequence[int], total: int, idle: Sequence[int]
) -> Iterator[tuple[int, int, int]]:
    """Yield (lender, borrower, amount), by place; ``total`` is what all of them divide."""
    over, lent = _find_lent_total(used, floors, total, idle)
    pairs = [(lender, borrower) for lender in range(len(idle)) for borrower in range(len(over))]
    # Rounded down as a running total, so that the parts add up to the whole.
    done = given = 0
    for lender, borrower in pairs if lent else ():
        done += idle[lender] * over[borrower]
        upto = lent * done // (sum(idle) * sum(over))
        if upto > given:
            yield lender, borrower, upto - given
        given = upto
