"""The terms of a fair share: each number that one quota's share of a resource was made from.

Nothing is computed anew: the terms are those that the solver worked with (``solve``), in its order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from koord.core.quota.model import QuotaSpec
from koord.core.quota.solve import KeySolution, Solution


@dataclass(frozen=True, slots=True)
class Terms:
    """How the share of one resource came about.

    The quota wants ``want``: what its pods and children ask (``demand``), at least min if it does
    not lend, at most max. Guaranteed is ``floor``: ``minimum``, as scaled, or what is guaranteed of
    use. From these it ``starts`` with its part. What ``total``, the share of the parent, then has
    ``left`` goes to all that want more, by ``weight`` of all their ``weights``, in rounds until
    nobody takes any: it adds ``borrowed``.
    """

    resource: str
    total: int
    own: int
    """What the parent's own pods ask, who are served before those who borrow."""
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

    @property
    def borrowed(self) -> int:
        """What it gets beyond what it starts with."""
        return self.share - self.starts


def find_terms(solution: Solution, spec: QuotaSpec) -> tuple[Terms, ...]:
    """Return the terms of every resource that is shared out to a quota, by resource."""
    row = solution.snapshot.tree.layout.row_of[spec.name]
    made = (_find(key, solved, row) for key, solved in sorted(solution.keys.items()))
    return tuple(one for one in made if one is not None and one.resource in spec.max)


def _find(key: str, solved: KeySolution, row: int) -> Terms | None:
    layout = solved.question.layout
    parent = layout.parent[row]
    asked = solved.level(parent)
    if asked is None:
        return None
    level, minimum, shares = asked
    first = next(first for one, first, _ in layout.levels if one == parent)
    at = row - first
    floors = _floors(minimum, level.guaranteed)
    starts = [*map(_start, floors, level.wants, level.lends)]
    wanting = [
        weight
        for weight, want, start in zip(level.weights, level.wants, starts, strict=True)
        if want > start
    ]
    total = level.total or 0
    return Terms(
        resource=key,
        total=total,
        own=level.own,
        demand=solved.requests.child_request[row],
        want=level.wants[at],
        minimum=level.minimum[at],
        scaled=minimum[at],
        floor=floors[at],
        lends=level.lends[at],
        starts=starts[at],
        left=max(0, total - sum(starts) - level.own),
        weight=level.weights[at],
        weights=sum(wanting),
        share=shares[at],
    )


def _floors(minimum: Sequence[int], guaranteed: Sequence[int] | None) -> list[int]:
    return [*minimum] if guaranteed is None else [*map(max, minimum, guaranteed)]


def _start(floor: int, want: int, lends: bool) -> int:  # noqa: FBT001 - mapped over columns
    return want if want <= floor and lends else floor
