"""Places pods of one shape in the domains of a tree, beside the members that are there already.

A :class:`DomainPlacer` splits pods over the tree and places them in the cycle; a rollback of the
cycle undoes both. Which pods belong together, and what to report if they do not fit, is the
caller's matter.

Pods that depend on each other beyond the network, by affinity or spread, cannot be split, because
offers of nodes do not add up. Domains are filled with them as with any unit, and the first one that
takes all is used: a good one, but not known to be the best.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from koord.core.engine.allocator import Allocator
from koord.core.engine.arrays import Ints, Mask, choose_tightest
from koord.core.engine.cycle import Cycle
from koord.core.engine.scoring import Scoring
from koord.core.model.plan import Assignment, ObservedTopology
from koord.core.model.pods import Pod, PodShape
from koord.core.model.topology_constraint import PlacedMember, rank_member
from koord.core.topology.capacity import Goal, SplitRequest, sum_up
from koord.core.topology.solve import (
    NoSplit,
    Split,
    count_used,
    explain_offers,
    find_insertion,
    split,
)
from koord.core.topology.strategy.observation import count_by_position, describe_rows
from koord.core.topology.strategy.topology_view import TopologyView
from koord.core.topology.tree import TopologyTree

MAX_MATCHED: Final = 64
"""Up to this many joining members are matched with nodes one by one."""

Shares = Sequence[tuple[int, int]]
"""(row, number of pods), in the order to be filled."""


class DomainPlacer:
    """A tree with the members of one gang, or of gangs that are placed together, on it.

    ``outside`` holds nodes of members that are not in the tree. ``allowed`` restricts placement to
    some positions of the tree. ``is_exact`` is False once a method was used that may miss the best
    placement.
    """

    def __init__(
        self,
        cycle: Cycle,
        view: TopologyView,
        tree: TopologyTree,
        goal: Goal,
        placed: Iterable[PlacedMember],
    ) -> None:
        self.cycle = cycle
        self._view = view
        self.tree = tree
        self.goal = goal
        self.allowed: Mask | None = None
        self.is_exact = True
        self.fixed: Ints = np.zeros(len(tree.rows), dtype=np.int64)
        self.members, self.outside = self._divide(placed)
        self._count(self.members, 1)

    def add(self, members: Iterable[PlacedMember]) -> None:
        """Count members on nodes until the cycle is rolled back."""
        inside, outside = self._divide(members)
        self._count(inside, 1)
        self.members += inside
        self.outside += outside
        self.cycle.undo.push(self._remove_last, inside, len(outside))

    def _divide(self, members: Iterable[PlacedMember]) -> tuple[list[PlacedMember], list[str]]:
        """Return the members in the tree, and the nodes of the others."""
        inside, outside = [], []
        for member in members:
            row = self.cycle.table.row_of.get(member.node)
            if row in self.tree:
                inside.append(member)
            elif row is not None:
                outside.append(member.node)
        return inside, outside

    def _remove_last(self, members: Sequence[PlacedMember], outside: int) -> None:
        self._count(members, -1)
        del self.members[len(self.members) - len(members) :]
        del self.outside[len(self.outside) - outside :]

    def _count(self, members: Sequence[PlacedMember], sign: int) -> None:
        np.add.at(self.fixed, self._positions_of(members), sign)

    def _positions_of(self, members: Iterable[PlacedMember]) -> Ints:
        row_of = self.cycle.table.row_of
        return self.tree.positions_of([row_of[member.node] for member in members])

    def assign(self, pods: Sequence[Pod], shares: Shares) -> list[Assignment]:
        """Give pods, which the cycle has placed, the nodes of shares in order."""
        assignments: list[Assignment] = []
        for row, count in shares:
            node = self.cycle.table.node_at(row).name
            taken = pods[len(assignments) : len(assignments) + count]
            assignments += [Assignment(pod, node) for pod in taken]
        self.add([as_member(assignment) for assignment in assignments])
        return assignments

    def place_again(self, assignments: Sequence[Assignment]) -> None:
        """Repeat assignments that were rolled back."""
        for assignment in assignments:
            self.cycle.place(
                self.cycle.shape_of(assignment.pod), self.cycle.table.row_of[assignment.node]
            )
        self.add([as_member(assignment) for assignment in assignments])

    def offers(self, shape: PodShape, within: Mask | None = None) -> Ints:
        """Return how many pods of a shape fit now, per position in the tree."""
        return self._restrict(self.cycle.room(shape), within)

    def reach(self, shape: PodShape, within: Mask | None = None) -> Ints:
        """Return how many may fit at most, however other pods are placed."""
        return self._restrict(self.cycle.possible_room(shape), within)

    def _restrict(self, per_row: Ints, within: Mask | None) -> Ints:
        room = per_row[self.tree.rows]
        for mask in (self.allowed, within):
            if mask is not None:
                room = np.where(mask, room, 0)
        return room

    def request(self, pods: Sequence[Pod], least: int, offers: Ints, goal: Goal) -> SplitRequest:
        return SplitRequest(
            goal=goal,
            offers=offers,
            least=least,
            most=len(pods),
            fixed=self.fixed if self.members else None,
            near=self._count_attracting(pods[0]),
        )

    def _count_attracting(self, pod: Pod) -> Ints | None:
        attracting = self._view.attracting_pods(pod.attraction)
        return count_by_position(self.cycle, self.tree, attracting) if attracting else None

    def place(
        self,
        pods: Sequence[Pod],
        least: int,
        *,
        goal: Goal | None = None,
        within: Mask | None = None,
    ) -> list[Assignment] | NoSplit:
        """Place at least ``least`` pods of one shape, the first by rank; or return the offers.

        ``goal`` replaces that of the placer, ``within`` restricts placement further.
        """
        shape = self.cycle.shape_of(pods[0])
        request = self.request(pods, least, self.offers(shape, within), goal or self.goal)
        if self.cycle.is_reactive(shape):
            return self._place_dependent(shape, pods, request, self.reach(shape, within))
        no_split = self._find_insertion(pods, request) or self.split(request)
        if isinstance(no_split, NoSplit):
            return no_split
        for row, count in no_split.shares:
            self.cycle.place(shape, row, count)
        return self.assign(self._order(pods, no_split.shares), no_split.shares)

    def split(self, request: SplitRequest) -> Split | NoSplit:
        """Split pods over the tree, within the steps that the unit may take."""
        return split(self.tree, request, self.cycle.steps.spend)

    def _find_insertion(self, pods: Sequence[Pod], request: SplitRequest) -> Split | None:
        """Return the node of a single member between the members next to it, if it has an index."""
        if len(pods) > 1 or not self.members or max(request.goal.units) > 1:
            return None
        neighbours = self._neighbours(pods[0].index)
        return find_insertion(self.tree, request, neighbours) if neighbours else None

    def _place_dependent(
        self, shape: PodShape, pods: Sequence[Pod], request: SplitRequest, reach: Ints
    ) -> list[Assignment] | NoSplit:
        self.is_exact = False
        shares = self._fill_domain(shape, replace(request, offers=reach))
        if not shares:
            return explain_offers(self.tree, request)
        shares.sort(key=lambda share: self.tree.path_of_row(share[0]))
        return self.assign(sort_members(pods), shares)

    def _fill_domain(self, shape: PodShape, request: SplitRequest) -> list[tuple[int, int]]:
        """Fill the first domain that takes enough; return nothing if there is none."""
        least, cycle = max(request.least, 1), self.cycle
        for positions in self._candidates(request.goal, least, request.offers):
            mark = cycle.checkpoint()
            rows = np.zeros(len(cycle.table.nodes), dtype=np.bool_)
            rows[self.tree.rows[positions]] = True
            with cycle.only({shape: rows}):
                shares = Allocator(cycle, Scoring()).fill(shape, request.most)
            filled = [(share.row, share.count) for share in shares]
            if sum(count for _, count in filled) >= least and self._has_multiples(
                request.goal, filled
            ):
                return filled
            cycle.rollback(mark)
        return []

    def _candidates(self, goal: Goal, least: int, offers: Ints) -> Iterator[Mask]:
        """Yield the positions of domains that may suffice: lowest layer, then least room first."""
        tree, rooms, fixed = self.tree, sum_up(self.tree, offers), sum_up(self.tree, self.fixed)
        for layer in range(tree.depth, goal.must - 1, -1):
            room = rooms[layer]
            fits = (room >= least) & np.equal(fixed[layer], len(self.members))
            for domain in choose_tightest(fits, room, tree.name_ranks(layer))[0]:
                yield np.equal(tree.domains_of(layer), domain) & (offers > 0)

    def _has_multiples(self, goal: Goal, shares: Shares) -> bool:
        total = self.fixed.copy()
        for row, count in shares:
            total[self.tree.positions_of([row])] += count
        pairs = zip(sum_up(self.tree, total), goal.units, strict=True)
        return not any((counts % unit).any() for counts, unit in pairs)

    def _neighbours(self, index: int) -> list[int]:
        """Return the positions of the members right before and right after an index."""
        if index < 0:
            return []
        before = [member for member in self.members if 0 <= member.index <= index]
        after = [member for member in self.members if member.index > index]
        nearest = []
        if before:
            nearest.append(
                max(before, key=lambda placed_member: (placed_member.index, placed_member.node))
            )
        if after:
            nearest.append(
                min(after, key=lambda placed_member: (placed_member.index, placed_member.node))
            )
        return list(map(int, self._positions_of(nearest)))

    def _order(self, pods: Sequence[Pod], shares: Shares) -> list[Pod]:
        """Return pods in the order in which they take the shares: by rank, or near neighbours.

        The latter if members with an index are placed already.
        """
        ordered = sort_members(pods)
        ranked = any(member.index >= 0 for member in self.members)
        if not ranked or len(shares) == 1 or len(pods) > MAX_MATCHED:
            return ordered
        left = dict(shares)
        pairs = sorted(
            (self._breaks(row, self._neighbours(pod.index)), rank, at, row)
            for rank, pod in enumerate(ordered)
            for at, row in enumerate(left)
        )
        chosen: dict[int, tuple[int, int]] = {}
        for _, rank, at, row in pairs:
            if rank not in chosen and left[row]:
                chosen[rank] = (at, rank)
                left[row] -= 1
        return [ordered[rank] for _, rank in sorted(chosen.values())]

    def _breaks(self, row: int, neighbours: Sequence[int]) -> tuple[int, ...]:
        """Count, per layer from the top, the neighbours that are in another domain."""
        tree = self.tree
        path, near = (
            tree.path_of_row(row),
            [tree.path_of(tree.depth, neighbour) for neighbour in neighbours],
        )
        return tuple(
            sum(other[: at + 1] != path[: at + 1] for other in near) for at in range(len(path))
        )

    def used(self) -> tuple[int, ...]:
        """Return how many domains of each layer, from the root, hold a member."""
        return count_used(self.tree, np.flatnonzero(self.fixed))

    def used_with(self, shares: Shares) -> tuple[int, ...]:
        """Return :meth:`used` with more members."""
        positions = self.tree.positions_of([row for row, _ in shares])
        return count_used(self.tree, np.union1d(positions, np.flatnonzero(self.fixed)))

    def observe(self, topology: str, gap: tuple[str, int] | None) -> ObservedTopology | None:
        """Return where the members are; None if none is in the tree."""
        rows = self.tree.rows[np.flatnonzero(self.fixed)].tolist()
        return describe_rows(self.tree, topology, rows, gap) if rows else None


def as_member(assignment: Assignment) -> PlacedMember:
    pod = assignment.pod
    return PlacedMember(assignment.node, pod.index, pod.name, pod.sub_group)


def sort_members(pods: Sequence[Pod]) -> list[Pod]:
    """Return members in the order in which they take neighbouring nodes."""
    return sorted(pods, key=lambda pod: rank_member(pod.index, pod.name, pod.uid))
